"""Random jobs with random troubles, every result checked: ``python -m tests.faults.soak --minutes 30 --seed 0``.

Each job makes groups and calls collectives, all drawn from its seed, on values whose results are exact in any order of
summing. Its trouble is one of TROUBLES. Ranks that outlive another must be told of it by name, make a new world and go
on. After each job nothing of it may be left. Ends with exit code 1 after a wrong result or a leak; a job that went
wrong is run again by ``--jobs 1 --seed ITS_SEED``.
"""

import argparse
import contextlib
import gc
import os
import random
import re
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

from tests.faults.judge import FLOOR
from tests.harness import RanksFailed, run

TROUBLES = {
    "none": 2,
    "kill": 4,
    "kill at a call": 3,
    "link": 2,
    "delay": 1,
    "corrupt": 1,
    "chip": 1,
    "mismatch": 1,
}
STEPS = 60
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8]
SIZES = [0, 1, 3, 64, 1000, 5000, 40_000, 300_000]
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "reduce", "send_recv"]
REDUCTIONS = {"SUM": torch.Tensor.sum, "MAX": torch.Tensor.amax, "MIN": torch.Tensor.amin}
GROUP_TIMEOUT = 20  # seconds
LEFT = r"has destroyed the group|exited with code 0"  # a rank that had been told before
LONGEST = 2000  # characters of an error that are shown


def given(seed: int, member: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """What a member contributes: small whole numbers, whose sums every dtype holds exactly."""
    source = torch.Generator().manual_seed(seed * 100 + member)
    return torch.randint(0, 8, shape, generator=source).to(dtype)


def step(draw: random.Random, groups: dict[tuple[int, ...], Any], rank: int, device: str) -> tuple[int, str]:
    """One operation of a group, the same on all ranks: how many this rank called (0 or 1), and what was wrong."""
    members = draw.choice(list(groups))
    op, dtype, size = draw.choice(OPS), draw.choice(DTYPES), draw.choice(SIZES)
    reduction, root, is_async, seed = (
        draw.choice(list(REDUCTIONS)), draw.randrange(len(members)), draw.random() < 0.4, draw.randrange(10**9),
    )  # fmt: skip
    if rank not in members:
        return 0, ""
    group, n, me = groups[members], len(members), members.index(rank)
    shape = (n, size) if op in ("reduce_scatter", "all_to_all") else (size,)
    inputs = [given(seed, member, shape, dtype) for member in range(n)]
    own = inputs[me].to(device, copy=True)
    kind = getattr(dist.ReduceOp, reduction)

    def summed() -> torch.Tensor:
        return REDUCTIONS[reduction](torch.stack(inputs), 0).to(dtype)

    works: list[Any] = []
    out, expected = own, own
    if op == "all_reduce":
        works = [dist.all_reduce(own, kind, group=group, async_op=is_async)]
        expected = summed()
    elif op == "reduce":
        works = [dist.reduce(own, group_dst=root, op=kind, group=group, async_op=is_async)]
        expected = summed() if me == root else inputs[me]
    elif op == "broadcast":
        works = [dist.broadcast(own, group_src=root, group=group, async_op=is_async)]
        expected = inputs[root]
    elif op == "all_gather":
        out = torch.empty(n * size, dtype=dtype, device=device)
        works = [dist.all_gather_into_tensor(out, own, group=group, async_op=is_async)]
        expected = torch.cat(inputs)
    elif op == "reduce_scatter":
        out = torch.empty(size, dtype=dtype, device=device)
        works = [dist.reduce_scatter_tensor(out, own.flatten(), kind, group=group, async_op=is_async)]
        expected = summed()[me]
    elif op == "all_to_all":
        out = torch.empty(n * size, dtype=dtype, device=device)
        works = [dist.all_to_all_single(out, own.flatten(), group=group, async_op=is_async)]
        expected = torch.cat([each[me] for each in inputs])
    elif n > 1:
        out = torch.empty(size, dtype=dtype, device=device)
        works = [
            dist.isend(own, group_dst=(me + 1) % n, group=group, tag=seed % 7),
            dist.irecv(out, group_src=(me - 1) % n, group=group, tag=seed % 7),
        ]
        expected = inputs[(me - 1) % n]
    for work in filter(None, works):
        work.wait()
    if torch.equal(out.cpu(), expected.cpu()):
        return 1, ""
    return 1, f"{op}({reduction}, {dtype}, {shape}, root {root}, async {is_async}) of {members} on {device}"


def steps(draw: random.Random, rank: int, ranks: list[int], count: int) -> tuple[int, list[str]]:
    """Collectives called and wrong ones, in a world of its own and up to three subgroups."""
    groups: dict[tuple[int, ...], Any] = {tuple(ranks): dist.group.WORLD}
    timeout = timedelta(seconds=GROUP_TIMEOUT)
    for _ in range(draw.randrange(4)):
        chosen = sorted(draw.sample(range(len(ranks)), draw.randrange(1, len(ranks) + 1)))
        members = tuple(ranks[i] for i in chosen)
        if members not in groups:
            groups[members] = dist.new_group(chosen, timeout=timeout)
    done, wrong = 0, []
    for _ in range(count):
        device = draw.choice(["neuron", "neuron", "cpu"])
        called, was_wrong = step(draw, groups, rank, device)
        done += called
        wrong += [was_wrong] if was_wrong else []
    dist.barrier()
    return done, wrong


def job(rank: int, size: int, seed: int, trouble: str, victim: int, after: float) -> dict[str, Any]:
    """One rank's part. Returns what it did, and what it was told if the victim died."""
    warnings.simplefilter("ignore")
    store = dist.distributed_c10d._get_default_store()
    if trouble == "kill" and rank == victim:
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    try:
        done, wrong = steps(random.Random(seed), rank, list(range(size)), STEPS)
        if trouble == "mismatch":
            dist.all_reduce(torch.ones(3 + (rank == victim), device="neuron"))
        return {"collectives": done, "wrong": wrong, "told": ""}
    except dist.DistBackendError as error:
        told = str(error)
    gc.collect()
    dist.destroy_process_group()
    left = [other for other in range(size) if other != victim] if "kill" in trouble else list(range(size))
    if trouble == "chip" or len(left) < 1:
        return {"collectives": 0, "wrong": [], "told": told}
    dist.init_process_group(
        "neuron",
        store=dist.PrefixStore("again", store),
        rank=left.index(rank),
        world_size=len(left),
        timeout=timedelta(seconds=GROUP_TIMEOUT),
    )
    done, wrong = steps(random.Random(seed + 1), left.index(rank), list(range(len(left))), STEPS // 4)
    return {"collectives": done, "wrong": wrong, "told": told}


def environment(trouble: str, draw: random.Random, size: int, victim: int) -> dict[str, str]:
    """The fault, where NEURON_SIM_FAULTS states it."""
    call = draw.randrange(1, STEPS // 2)
    fault = {
        "kill at a call": f"rank:{victim}:kill@{draw.choice(['call', 'inside', 'after'])}={call}",
        "link": f"link:any:{draw.choice(['down', 'slow=0.1', 'late=20'])}@call={call}; seed={draw.randrange(100)}",
        "delay": f"rank:{victim}:delay=0.3@call={call}",
        "corrupt": f"rank:{victim}:corrupt@call={call}",
        "chip": f"chip:{victim}:down@call={call}",
    }.get(trouble, "")
    check = {"NEURON_SIM_CHECK": "1"} if draw.random() < 0.2 else {}
    return {"NEURON_SIM_TOPOLOGY": "torus:2x4", "NEURON_SIM_FAULTS": fault, **check}


def play(seed: int) -> Counter[str]:
    """One job. Raises AssertionError if a rank did or was told what it should not."""
    draw = random.Random(seed)
    size = draw.choice([2, 3, 4, 6, 8])
    trouble = draw.choices(list(TROUBLES), list(TROUBLES.values()))[0]
    victim, after = draw.randrange(size), draw.random() * 0.8
    env = environment(trouble, draw, size, victim)
    died: dict[int, str] = {}
    try:
        told = dict(
            enumerate(
                run(
                    size,
                    job,
                    seed,
                    trouble,
                    victim,
                    after,
                    timeout=FLOOR,
                    group_timeout=GROUP_TIMEOUT,
                    env=env,
                )
            )
        )
    except RanksFailed as failed:
        told, died = failed.results, failed.errors
    assert set(died) <= ({victim} if "kill" in trouble else set()), died
    killed = died.get(victim, "").endswith("died of SIGKILL")  # perhaps as it left
    assert killed or not died, died
    if killed:
        told.pop(victim, None)
    count = Counter(jobs=1, collectives=sum(each["collectives"] for each in told.values()))
    count["killed"] = killed
    wrong = {rank: each["wrong"] for rank, each in told.items() if each["wrong"]}
    if trouble == "corrupt":  # what a rank was made to see
        assert set(wrong) <= {victim}, wrong
        count["corrupted"] = sum(map(len, wrong.values()))
        assert count["corrupted"] <= 1, wrong
        wrong = {}
    count["wrong"] = sum(map(len, wrong.values()))
    assert not wrong, f"wrong results by rank: {wrong}"
    words = {rank: each["told"] for rank, each in told.items() if each["told"]}
    expected = {
        "chip": rf"rank {victim} \(pid \d+\) lost the chip|{LEFT}",
        "mismatch": r"different sizes",
    }.get(trouble, rf"rank {victim} \(pid \d+\) was killed by SIGKILL|{LEFT}")
    for rank, text in words.items():
        assert killed or trouble in ("chip", "mismatch"), f"rank {rank}: {text}"
        assert re.search(expected, text), f"rank {rank}: {text}"
    count[f"faults: {trouble}"] = trouble != "none"
    return count


def idle(rank: int, size: int) -> None:
    pass


def left_behind() -> dict[str, Any]:
    """What processes could leave on this host: others, files, shared memory, sockets, and this one's files open."""
    me = psutil.Process()
    with contextlib.suppress(OSError):
        shared = sorted(name for name in os.listdir("/dev/shm") if not name.startswith("torch_"))
    sockets = sum("neuron-dist-" in line for line in Path("/proc/net/unix").read_text().splitlines())
    temporary = sorted(name for name in os.listdir("/tmp") if name.startswith("neuron"))
    children = {child.pid for child in me.children(recursive=True)}
    return {
        "processes": children, "/dev/shm": shared, "sockets": sockets, "/tmp": temporary, "files open": me.num_fds(),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--jobs", type=int, default=10**9, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0, help="of the first job; the others count on from it")
    args = parser.parse_args()
    until = time.monotonic() + args.minutes * 60
    total: Counter[str] = Counter()
    run(1, idle)  # starts the server that jobs fork from
    before = left_behind()
    for number in range(args.jobs):
        if time.monotonic() >= until:
            break
        seed = args.seed + number
        try:
            total += play(seed)
        except Exception as error:
            total["failed jobs"] += 1
            print(f"--seed {seed}: {str(error)[-LONGEST:]}", flush=True)
        time.sleep(0.01)
        after = left_behind()
        if after != before:
            total["leaks"] += 1
            changed = [
                f"{what}: {before[what]} -> {after[what]}" for what in after if after[what] != before[what]
            ]
            print(f"--seed {seed} left something behind: {'; '.join(changed)}", flush=True)
            before = after
        if number % 50 == 49:
            print(_line(total), flush=True)
    print(_line(total))
    return 1 if total["wrong"] or total["leaks"] or total["failed jobs"] else 0


def _line(total: Counter[str]) -> str:
    faults = sum(count for name, count in total.items() if name.startswith("faults: "))
    kinds = ", ".join(
        f"{name.removeprefix('faults: ')} {n}" for name, n in sorted(total.items()) if "faults" in name
    )
    return (
        f"jobs {total['jobs']}, collectives {total['collectives']}, faults {faults} ({kinds}), "
        f"killed {total['killed']}, corrupted {total['corrupted']}, "
        f"failed jobs {total['failed jobs']}, wrong {total['wrong']}, leaks {total['leaks']}"
    )


if __name__ == "__main__":
    sys.exit(main())
