"""MPICH through mpi4py's buffer calls. The job's processes are then started by its ``mpiexec``."""

import torch

from . import Call, Start


def connect(rank: int, ranks: int) -> Start:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    following, previous = (rank + 1) % ranks, (rank - 1) % ranks

    def start(op: str, given: torch.Tensor, output: torch.Tensor) -> "Call | None":
        sums = op in ("all_reduce", "reduce_scatter")
        if given.dtype == torch.bfloat16:
            if sums:
                return None  # the standard has no such type
            given, output = given.view(torch.uint16), output.view(torch.uint16)
        mine, theirs = given.numpy(), output.numpy()
        calls: dict[str, Call] = {
            "all_reduce": lambda: comm.Allreduce(MPI.IN_PLACE, mine),
            "all_gather": lambda: comm.Allgather(mine, theirs),
            "reduce_scatter": lambda: comm.Reduce_scatter_block(mine, theirs),
            "all_to_all": lambda: comm.Alltoall(mine, theirs),
            "broadcast": lambda: comm.Bcast(mine),
            "send_recv": lambda: comm.Sendrecv(mine, following, recvbuf=theirs, source=previous),
        }
        return calls[op]

    return start
