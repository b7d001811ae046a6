"""What the algorithms are: schedules, verified, priced, chosen and drawn. Pure Python and NumPy, no torch.

group = Group(load("trn2.48xlarge"))
schedule = build("all_reduce", choose("all_reduce", group, 1 << 20), group)
verify(schedule, group)
price(schedule, group, 1 << 20).time_us
reduction_order(schedule).program(chunk=0)
"""

from .bound import bound_us_per_byte
from .build import algorithm_names, build
from .choose import choose, parse_selection, profiles
from .errors import CollectiveError, Unsupported, VerificationError
from .ops import OPS
from .order import ADD, ReductionOrder, reduction_order
from .price import Price, Profile, price, profile
from .schedule import Draft, Schedule, transfers
from .verify import verify

__all__ = [
    "ADD",
    "OPS",
    "CollectiveError",
    "Draft",
    "Price",
    "Profile",
    "ReductionOrder",
    "Schedule",
    "Unsupported",
    "VerificationError",
    "algorithm_names",
    "bound_us_per_byte",
    "build",
    "choose",
    "parse_selection",
    "price",
    "profile",
    "profiles",
    "reduction_order",
    "transfers",
    "verify",
]
