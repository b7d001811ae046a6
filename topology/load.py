"""Topologies by name, file or inline spec, with the provenance of every number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from .builders import LINK_GBPS, SwitchLevel, from_links, ring, several, switched, torus
from .errors import TopologyError
from .topology import Fact, Topology

COUNTINGS = ("bidirectional", "per_direction")
MARKS = ("documented", "derived", "inferred", "field", "given")
_NUMBERS = ("core_gbps", "core_us", "step_us", "launch_us", "hbm_gib", "hbm_gbps")


def preset_names() -> list[str]:
    """The instance types there is a data file for."""
    folder = resources.files(__package__) / "presets"
    return sorted(
        entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")
    )


@lru_cache(maxsize=64)
def load(spec: str, *, lnc: int | None = None, link_counting: str | None = None) -> Topology:
    """A topology from a preset's name, a file or an inline shape; ``*4`` behind it joins nodes.

    Inline shapes are links alone, 128 GB/s each way, with one core a chip and memory that costs nothing;
    ``torus:4x8@128,64`` sets GB/s by dimension. ``lnc`` (logical NeuronCore configuration, 1 or 2) and
    ``link_counting`` override those of a preset or file.
    """
    name, star, count = spec.rpartition("*") if "*" in spec else (spec, "", "1")
    if star and not (count.isdecimal() and 0 < int(count) <= 1024):
        raise TopologyError(f"topology {spec!r}: {count!r} is no number of nodes")
    kind, colon, shape = name.partition(":")
    if colon and kind in ("torus", "ring", "switch"):
        node, efa_gbps, efa_us = _inline(name, kind, shape), 25.0, 15.0
    else:
        description = _read(name)
        node = from_description(description, name, lnc=lnc, link_counting=link_counting)
        efa = _value(name, description, "efa_gbps", float, 0.0) / node.chips_per_node
        efa_gbps, efa_us = efa, _value(name, description, "efa_us", float, 15.0)
    return several(node, int(count), efa_gbps, efa_us)


def from_description(
    description: Mapping[str, Any], where: str, *, lnc: int | None = None, link_counting: str | None = None
) -> Topology:
    """A topology from what a preset or user's file says. Raises TopologyError with file, field and value."""
    known = {"name", "description", "fabric", "dims", "nodes", "physical_cores_per_chip", "lnc", "link_gbps"}
    known |= {
        "link_counting",
        "link_us",
        "levels",
        "direct",
        "links",
        "efa_gbps",
        "efa_us",
        "tflops",
        *_NUMBERS,
    }
    for unknown in set(description) - known:
        raise TopologyError(f"{where}: {unknown}: no such field")
    facts = {name: _fact(where, name, entry) for name, entry in description.items()}

    physical = _value(where, description, "physical_cores_per_chip", int)
    grouping = lnc if lnc is not None else _value(where, description, "lnc", int, 1)
    if grouping < 1 or physical % grouping or grouping > 2:
        raise TopologyError(
            f"{where}: lnc={grouping}: {physical} physical cores take 1" + " or 2" * (physical > 2)
        )
    if lnc == 2 and physical <= 2:
        raise TopologyError(f"{where}: lnc=2: NeuronCore-v2 chips have no logical cores of two")
    counting = link_counting or _value(where, description, "link_counting", str, "bidirectional")
    if counting not in COUNTINGS:
        raise TopologyError(f"{where}: link_counting={counting!r}: expected {' or '.join(COUNTINGS)}")
    one_way = 0.5 if counting == "bidirectional" else 1.0
    knobs = {"lnc": lnc, "link_counting": link_counting}
    facts |= {name: Fact(value, "given", "set by the caller") for name, value in knobs.items() if value}

    numbers: dict[str, Any] = {name: _value(where, description, name, float, None) for name in _NUMBERS}
    numbers = {name: value for name, value in numbers.items() if value is not None}
    numbers |= {
        "name": str(description.get("name", where)),
        "nodes": _value(where, description, "nodes", int, 1),
        "cores_per_chip": physical // grouping,
        "tflops": _value(where, description, "tflops", dict, {}),
        "facts": facts,
    }
    dims = tuple(_list(where, "dims", _value(where, description, "dims", list), int))
    fabric = _value(where, description, "fabric", str)
    if fabric == "none":
        return torus(dims, 1.0, **numbers)
    if fabric == "torus":
        speeds = _list(
            where, "link_gbps", _value(where, description, "link_gbps", (list, float)), float, len(dims)
        )
        delays = _list(
            where, "link_us", _value(where, description, "link_us", (list, float)), float, len(dims)
        )
        return torus(dims, [speed * one_way for speed in speeds], delays, **numbers)
    if fabric == "switch":
        levels = [
            _level(where, level, "chips", one_way) for level in _value(where, description, "levels", list)
        ]
        direct = _value(where, description, "direct", dict, None)
        return switched(dims, levels, direct and _level(where, direct, "stride", one_way), **numbers)
    if fabric == "links":
        rows = [_wire(where, wire, one_way) for wire in _value(where, description, "links", list)]
        return from_links(int(dims[0]), rows, **numbers)
    raise TopologyError(f"{where}: fabric={fabric!r}: expected torus, switch, links or none")


def _read(name: str) -> Mapping[str, Any]:
    if name in preset_names():
        text = (resources.files(__package__) / "presets" / f"{name}.json").read_text()
    elif Path(name).is_file():
        text = Path(name).read_text()
    else:
        raise TopologyError(
            f"topology {name!r}: no such preset or file; expected torus:4x4, ring:8 or such, or one of "
            f"{', '.join(preset_names())}"
        )
    try:
        description = json.loads(text)
    except json.JSONDecodeError as error:
        raise TopologyError(f"{name}:{error.lineno}: not JSON: {error.msg}") from None
    if not isinstance(description, dict):
        raise TopologyError(f"{name}: expected an object of fields")
    return description


def _inline(spec: str, kind: str, shape: str) -> Topology:
    extents, at, speeds = shape.partition("@")
    try:
        dims = [int(extent) for extent in extents.split("x")]
        gbps = [float(speed) for speed in speeds.split(",")] if at else [LINK_GBPS]
    except ValueError:
        raise TopologyError(
            f"topology {spec!r}: expected a shape such as torus:4x4, ring:8 or torus:4x8@128,64"
        ) from None
    if min(dims) < 1 or max(dims) > 1 << 16 or (kind != "torus" and len(dims) > 1):
        raise TopologyError(f"topology {spec!r}: no such {kind}")
    speed: Any = gbps if len(gbps) > 1 else gbps[0]
    if kind == "switch":
        return switched(dims, [SwitchLevel(dims[0], gbps[0], 0.5)], name=spec)
    return torus(dims, speed, name=spec) if kind == "torus" else ring(dims[0], speed, name=spec)


def _fact(where: str, name: str, entry: Any) -> Fact:
    if not (isinstance(entry, dict) and "value" in entry):
        return Fact(entry, "given")
    mark = entry.get("mark", "given")
    if mark not in MARKS:
        raise TopologyError(f"{where}: {name}.mark={mark!r}: expected one of {', '.join(MARKS)}")
    return Fact(entry["value"], mark, entry.get("source", ""))


_REQUIRED: Any = object()


def _value(where: str, description: Mapping[str, Any], name: str, kind: Any, default: Any = _REQUIRED) -> Any:
    """A field's value, bare or as {value, mark, source}; numbers must be finite and not negative."""
    if name not in description:
        if default is _REQUIRED:
            raise TopologyError(f"{where}: {name}: missing")
        return default
    return _typed(where, name, _fact(where, name, description[name]).value, kind)


def _typed(where: str, name: str, value: Any, kind: Any) -> Any:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kinds) or isinstance(value, bool):
        words = " or ".join(
            {int: "whole number", float: "number", list: "list", dict: "object", str: "text"}[k]
            for k in kinds
        )
        raise TopologyError(f"{where}: {name}={value!r}: expected a {words}")
    if isinstance(value, (int, float)) and not 0 <= value < float("inf"):
        raise TopologyError(f"{where}: {name}={value!r}: must not be negative")
    return value


def _list(where: str, name: str, value: Any, kind: Any, length: int | None = None) -> list[Any]:
    values = value if isinstance(value, list) else [value] * (length or 1)
    if not values or (length is not None and len(values) != length):
        raise TopologyError(
            f"{where}: {name}={value!r}: expected {length or 'one or more'} values, one a dimension"
        )
    return [_typed(where, f"{name}[{i}]", entry, kind) for i, entry in enumerate(values)]


def _level(where: str, level: Any, extent: str, one_way: float) -> SwitchLevel:
    level = _typed(where, "levels" if extent == "chips" else "direct", level, dict)
    chips, gbps, us = (
        _value(where, level, name, kind) for name, kind in ((extent, int), ("gbps", float), ("us", float))
    )
    return SwitchLevel(chips, gbps * one_way, us)


def _wire(where: str, wire: Any, one_way: float) -> tuple[int, int, float, float]:
    if not isinstance(wire, list) or len(wire) != 4:
        raise TopologyError(f"{where}: links: {wire!r}: expected [chip, chip, GB/s, us]")
    a, b = (_typed(where, f"links {wire}", end, int) for end in wire[:2])
    gbps, us = (_typed(where, f"links {wire}", number, float) for number in wire[2:])
    return a, b, gbps * one_way, us
