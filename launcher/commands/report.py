"""Say who a job waited for: its slowest ranks, busiest links, and ranks that fell out of step.

DIR is what `neuronrun --report DIR` (or NEURON_SIM_REPORT) had the ranks leave. Times of ranks are host time, of links
simulated time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from neuron_dist.collectives import CollectiveError

from .common import print_json, table

TOP = 5
STANDS_OUT = 0.5  # of the calls a rank came last to, and of all waiting
QUIET_S = 5.0  # a running rank writes every second


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the folder of the ranks' files")
    parser.add_argument(
        "--watch", action="store_true", help="show it live until the job is over (needs rich)"
    )


def run(args: argparse.Namespace) -> int:
    if args.watch:
        return _watch(Path(args.folder))
    found = summary(Path(args.folder))
    if args.json:
        print_json(found)
    else:
        print(text(found))
    return 0


def summary(folder: Path, *, over: bool = False) -> dict[str, Any]:
    """Everything the report says, from the ranks' files. ``over``: none of them runs any more.

    Raises CollectiveError where there are none.
    """
    try:
        ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("rank_*.json"))]
    except ValueError as error:
        raise CollectiveError(f"{folder}: not a rank's file: {error}") from None
    if not ranks:
        raise CollectiveError(f"{folder}: no rank_N.json; run the job with neuronrun --report {folder}")
    ranks.sort(key=lambda each: each["rank"])
    world = max(each["world_size"] for each in ranks)
    groups = _groups(ranks)
    found: dict[str, Any] = {
        "ranks": world,
        "missing": sorted(set(range(world)) - {each["rank"] for each in ranks}),
        "states": {each["rank"]: _state(each, over) for each in ranks},
        "failures": {each["rank"]: each["failure"] for each in ranks if each.get("failure")},
        "calls": sum(group["calls"] for group in groups.values()),
        "groups": groups,
        "slowest": _slowest(ranks, groups),
        "links": _links(ranks),
        "behind": _behind(ranks),
    }
    found["verdict"] = _verdict(found)
    return found


def _state(counters: dict[str, Any], over: bool) -> str:
    """A rank that was killed cannot say so: its file grows old."""
    quiet = over or time.time() - counters["time"] >= QUIET_S
    return "silent" if counters["state"] == "running" and quiet else str(counters["state"])


def _groups(ranks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each group as the rank with the most calls saw it, and what its ranks waited."""
    groups: dict[str, dict[str, Any]] = {}
    for each in ranks:
        for name, waits in each["groups"].items():
            known = groups.setdefault(name, waits | {"waited_s": {}})
            if waits["calls"] > known["calls"]:
                groups[name] = known = waits | {"waited_s": known["waited_s"]}
            known["waited_s"][each["rank"]] = waits["waited_s"]
    return groups


def _slowest(ranks: list[dict[str, Any]], groups: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for waits in groups.values():
        for place, rank in enumerate(waits["ranks"]):
            row = rows.setdefault(
                rank, {"rank": rank, "calls": 0, "last": 0, "held_up_s": 0.0, "waited_s": 0.0}
            )
            row["calls"] += waits["calls"]
            row["last"] += waits["times_last"][place]
            row["held_up_s"] += waits["held_up_s"][place]
            row["waited_s"] += waits["waited_s"].get(rank, 0.0)
    return sorted(rows.values(), key=lambda row: -row["held_up_s"])


def _links(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    busy: dict[str, float] = {}
    for each in ranks:
        for name, seconds in each.get("links", {}).items():
            busy[name] = busy.get(name, 0.0) + seconds
    return [
        {"link": name, "busy_us": busy[name] * 1e6} for name in sorted(busy, key=lambda name: -busy[name])
    ]


def _behind(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ranks whose last finished call of a group is not the group's last."""
    last: dict[str, dict[int, tuple[int, str]]] = {}
    for each in ranks:
        for name, waits in each["groups"].items():
            last.setdefault(name, {})[each["rank"]] = waits["last_call"], waits["last_op"]
    found = []
    for name, calls in last.items():
        most = max(number for number, _ in calls.values())
        for rank, (number, op) in sorted(calls.items()):
            if number < most:
                found.append({"group": name, "rank": rank, "call": number, "op": op, "of": most})
    return found


def _verdict(found: dict[str, Any]) -> str:
    silent = [rank for rank, state in found["states"].items() if state == "silent"]
    if found["failures"]:
        rank, why = next(iter(found["failures"].items()))
        return f"rank {rank} failed: {why.splitlines()[0]}"
    if found["missing"] or silent:
        gone = sorted([*found["missing"], *silent])
        return f"rank {', '.join(map(str, gone))} did not end by itself: killed, stopped, or still starting"
    if found["behind"] and "running" not in found["states"].values():
        worst = min(found["behind"], key=lambda each: each["call"] - each["of"])
        at = f"call #{worst['call']} of group {worst['group']}"
        return f"rank {worst['rank']} is out of step: its last was {at}, others were at #{worst['of']}"
    waited = sum(row["held_up_s"] for row in found["slowest"])
    first = found["slowest"][0] if found["slowest"] else None
    if first and first["last"] >= STANDS_OUT * first["calls"] and first["held_up_s"] >= STANDS_OUT * waited:
        return (
            f"rank {first['rank']} holds the job up: last in {first['last']} of {first['calls']} collectives,"
            f" {first['held_up_s']:.3g} s of waiting for it alone"
        )
    return "no rank stands out"


def text(found: dict[str, Any]) -> str:
    lines = [f"{found['ranks']} ranks, {found['calls']} collectives in {len(found['groups'])} groups", ""]
    rows = [
        (
            str(row["rank"]),
            found["states"].get(row["rank"], "missing"),
            f"{row['last']}/{row['calls']}",
            f"{row['held_up_s']:.4f}",
            f"{row['waited_s']:.4f}",
        )
        for row in found["slowest"][:TOP]
    ]
    lines.append("slowest ranks (host time)")
    lines.append(table(("rank", "state", "last", "held up s", "waited s"), rows, left="state"))
    if found["links"]:
        lines += ["", "busiest links (simulated time)"]
        links = [(row["link"], f"{row['busy_us']:.1f}") for row in found["links"][:TOP]]
        lines.append(table(("link", "busy us"), links, left="link"))
    if found["behind"]:
        lines += ["", "out of step"]
        behind = [
            (str(row["rank"]), row["group"], f"#{row['call']} {row['op']}", f"#{row['of']}")
            for row in found["behind"][:TOP]
        ]
        lines.append(table(("rank", "group", "last call", "others at"), behind, left="group,last call"))
    for rank, why in found["failures"].items():
        lines += ["", f"rank {rank}: {why}"]
    return "\n".join([*lines, "", f"verdict: {found['verdict']}"])


def _watch(folder: Path) -> int:
    try:
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        raise CollectiveError("--watch needs the package rich: pip install rich") from None
    with Live(refresh_per_second=2) as live:
        while True:
            try:
                found = summary(folder)
            except CollectiveError as error:
                live.update(Text(str(error)))
            else:
                live.update(Text(text(found)))
                if "running" not in found["states"].values() and not found["missing"]:
                    return 0
            time.sleep(0.5)
