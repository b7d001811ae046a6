"""Which algorithm runs: the cheapest by default, or what a selection string says for the size.

A selection is in the manner of UCC's and oneCCL's tuning strings:
``all_reduce=mesh:0-1M;rdh:1M-56M;kangaring:56M-``, several ops apart by spaces. A range takes its first size
and not its last; one left open goes on for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..topology import Group
from .build import POINT_TO_POINT, algorithm_names, build, find
from .errors import CollectiveError, Unsupported
from .ops import OPS
from .price import Profile, profile
from .sizes import parse_size

# Neuron's limits inside an instance (intranode-collective-comm.rst); ring where kangaring cannot serve.
NEURON = " ".join(
    f"{op}=mesh:0-1M;rdh:1M-56M;kangaring:56M-;ring:56M-"
    for op in ("all_reduce", "all_gather", "reduce_scatter")
)
SELECTIONS = {"neuron": NEURON}


@dataclass(frozen=True)
class Rule:
    algorithm: str
    low: int
    high: float


def parse_selection(text: str) -> dict[str, list[Rule]]:
    """Rules by op of a selection string or of the preset ``neuron``. Raises CollectiveError."""
    rules: dict[str, list[Rule]] = {}
    for part in SELECTIONS.get(text, text).split():
        op, equals, listed = part.partition("=")
        if not equals or op not in OPS:
            raise CollectiveError(
                f"selection {part!r}: expected OP=ALGORITHM:FIRST-LAST;..., with a known op"
            )
        rules[op] = [_rule(part, item) for item in listed.split(";") if item]
    if not rules:
        raise CollectiveError(f"selection {text!r}: empty; expected such as {NEURON.split()[0]}, or neuron")
    return rules


def parse_rules(selection: str) -> dict[str, list[Rule]]:
    """The rules of a selection string. A lone algorithm, by name or ``file.py:function``, is for every op and size.

    Raises CollectiveError if it makes no sense.
    """
    if not selection:
        return {}
    if "=" in selection or selection in SELECTIONS:
        return parse_selection(selection)
    find(selection)
    return {op: [Rule(selection, 0, float("inf"))] for op in OPS}


def _rule(part: str, item: str) -> Rule:
    # From the right, since an algorithm may be path.py:function.
    algorithm, colon, span = item.rpartition(":")
    low, dash, high = span.partition("-")
    if not (colon and dash):
        raise CollectiveError(
            f"selection {part!r}: {item!r}: expected ALGORITHM:FIRST-LAST, such as rdh:1M-56M"
        )
    rule = Rule(algorithm, parse_size(low or "0"), parse_size(high) if high else float("inf"))
    if rule.low >= rule.high:
        raise CollectiveError(f"selection {part!r}: {item!r}: an empty range")
    return rule


def profiles(
    op: str,
    group: Group,
    algorithms: Iterable[str] | None = None,
    *,
    root: int = 0,
    pairs: tuple[tuple[int, int], ...] = (),
    beside: Sequence[Group] = (),
) -> dict[str, Profile]:
    """Every algorithm that serves the op on the group, ready to be priced. All built-in ones by default.

    ``beside``: groups on other cores that do the same at the same time, by the same schedule.
    """
    if algorithms is None:
        algorithms = ["direct"] if op in POINT_TO_POINT else algorithm_names()
    found: dict[str, Profile] = {}
    refused: list[str] = []  # not the errors, whose tracebacks would keep the caller's tensors
    for name in algorithms:
        try:
            found[name] = profile(build(op, name, group, root=root, pairs=pairs), group, beside)
        except Unsupported as error:
            refused.append(str(error))
    if not found:
        raise Unsupported(refused[0])
    return found


def cheapest(candidates: dict[str, Profile], size: int) -> str:
    """The name of the candidate with the least time at ``size`` bytes; the earliest of equals."""
    return min(candidates, key=lambda name: candidates[name].price(size).time_us)


def by_rule(candidates: dict[str, Profile], rules: Iterable[Rule], size: int) -> str:
    """The name of the candidate that the first rule for ``size`` bytes names, else of the cheapest."""
    for rule in rules:
        if rule.low <= size < rule.high and rule.algorithm in candidates:
            return rule.algorithm
    return cheapest(candidates, size)


def choose(
    op: str,
    group: Group,
    size: int,
    *,
    selection: str | None = None,
    root: int = 0,
    pairs: tuple[tuple[int, int], ...] = (),
) -> str:
    """The algorithm for ``size`` bytes: the cheapest, or the first rule of ``selection`` that can serve.

    Ops the selection does not name, and sizes no rule covers, fall to the cheapest.
    """
    for rule in parse_selection(selection).get(op, []) if selection else []:
        if rule.low <= size < rule.high:
            try:
                build(op, rule.algorithm, group, root=root, pairs=pairs)
            except Unsupported:
                continue
            return rule.algorithm
    return cheapest(profiles(op, group, root=root, pairs=pairs), size)
