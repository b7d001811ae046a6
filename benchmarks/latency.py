"""Where the time of a small collective goes: ``python -m benchmarks.latency``.

torch's ``fake`` backend does nothing, so its time through ``dist.all_reduce`` is torch's own: the part outside its
backend object's method is torch's Python wrapper, the method call the binding and Work. What our method takes above
that is the fabric: posting, waiting for the peer, reducing, recording. Host time, medians over the rounds, one run.
"""

import argparse
import os
from functools import partial

import torch
import torch.distributed as dist
from neuron_dist.launcher.measure import Job, measure
from neuron_dist.launcher.peers import Call, Start
from neuron_dist.launcher.peers.torch_group import call_on

PEERS = {"mpich": "mpich", "gloo": "gloo", "bare": "benchmarks.bare_loop:connect"}


def fake(rank: int, ranks: int) -> Start:
    """torch's own part: the same call on a backend that does nothing."""
    return partial(call_on, dist.new_group(backend="fake"))


def fake_dispatcher(rank: int, ranks: int) -> Start:
    """torch's dispatcher and below, on the backend that does nothing."""
    return _group_call(dist.new_group(backend="fake"))


def fake_method(rank: int, ranks: int) -> Start:
    """The method of a backend object that does nothing."""
    return _method_call(dist.new_group(backend="fake"), "cpu")


def own_method(rank: int, ranks: int) -> Start:
    """The method of our backend object, as torch's dispatcher calls it."""
    return _method_call(dist.group.WORLD, "neuron")


def _group_call(group: dist.ProcessGroup) -> Start:
    def start(op: str, given: torch.Tensor, output: torch.Tensor) -> Call:
        tensors, options = [given], dist.AllreduceOptions()
        options.asyncOp = False
        return lambda: group.allreduce(tensors, options)

    return start


def _method_call(group: "dist.ProcessGroup | None", device: str) -> Start:
    assert group is not None
    backend = group._get_backend(torch.device(device))

    def start(op: str, given: torch.Tensor, output: torch.Tensor) -> Call:
        tensors, options = [given.to(device)], dist.AllreduceOptions()
        options.asyncOp = False
        return lambda: backend.allreduce(tensors, options)

    return start


PARTS = (fake, fake_dispatcher, fake_method, own_method)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 1024, 4096], help="bytes")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=["gloo", "bare"])
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parts = [f"benchmarks.latency:{part.__name__}" for part in PARTS]
    peers = [PEERS[name] for name in args.peers]
    rows = measure(Job("all_reduce", args.ranks, args.sizes, peers=parts + peers, round_seconds=0.1))
    titles = ["bytes", "all_reduce", "wrapper", "dispatch", "method", "fabric", *args.peers]
    print("microseconds\n" + "".join(f"{title:>12}" for title in titles))
    for row in rows:
        whole, dispatcher, nothing, own = (row.peers_us[part] or 0 for part in parts)
        shares = [row.time_us, whole - dispatcher, dispatcher - nothing, nothing, own - nothing]
        times = shares + [row.peers_us[peer] or 0 for peer in peers]
        print(f"{row.size:12}" + "".join(f"{each:12.2f}" for each in times), flush=True)


if __name__ == "__main__":
    main()
