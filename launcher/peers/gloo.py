"""torch's Gloo backend, on CPU tensors."""

from functools import partial

import torch.distributed as dist

from . import Start
from .torch_group import call_on


def connect(rank: int, ranks: int) -> Start:
    return partial(call_on, dist.new_group(backend="gloo"))
