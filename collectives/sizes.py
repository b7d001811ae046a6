"""Sizes in bytes as people write them: ``64K``, ``1M``, ``1.5GiB``; ranges ``1K:1G``."""

from __future__ import annotations

import re

from .errors import CollectiveError

_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_MOST = 1 << 50


def parse_size(text: str) -> int:
    """Bytes of ``512``, ``64K``, ``1.5M``, ``2GiB`` (powers of 1024)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    size = int(float(match[1]) * (1 << _UNITS[match[2]])) if match else -1
    if not 0 <= size <= _MOST:
        raise CollectiveError(f"size {text!r}: expected bytes such as 512, 64K, 1M or 1.5GiB")
    return size


def parse_sizes(text: str) -> list[int]:
    """The sizes of ``1M``, ``1K,1M`` or ``1K:1G`` (doubling; ``1K:1G:4`` in steps of four times)."""
    if ":" not in text:
        return [parse_size(part) for part in text.split(",")]
    low, high, factor = [*text.split(":"), "2"][:3]
    first, last = parse_size(low), parse_size(high)
    if text.count(":") > 2 or not factor.isdecimal() or int(factor) < 2 or not 0 < first <= last:
        raise CollectiveError(f"sizes {text!r}: expected FIRST:LAST or FIRST:LAST:FACTOR, such as 1K:1G:4")
    sizes = [first]
    while sizes[-1] * int(factor) <= last:
        sizes.append(sizes[-1] * int(factor))
    return sizes


def format_size(size: int) -> str:
    """The shortest exact form: ``1M``, ``1536K``, ``1000``."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)
