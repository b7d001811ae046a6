from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, Store

# The device.
def configure_devices(count: int, capacity: int, initial: int) -> None: ...
def check_not_forked() -> None: ...
def is_in_bad_fork() -> bool: ...
def default_generator(device: int) -> torch.Generator: ...
def default_stream(device: int) -> torch.Stream: ...
def simulated_time(device: int) -> float: ...
def set_memory_fraction(device: int, fraction: float) -> None: ...
def record_memory_history(
    events: bool, stacks: int, cpp_frames: bool, max_events: int, clear: bool
) -> None: ...
def memory_snapshot() -> dict[str, Any]: ...

# The process group.
class ProcessGroupNeuron(Backend):
    class Options(Backend.Options):
        topology: str
        algorithm: str
        reduction: str
        def __init__(
            self, timeout: timedelta = ..., *, topology: str = "", algorithm: str = "", reduction: str = ""
        ) -> None: ...
        def __copy__(self) -> ProcessGroupNeuron.Options: ...
        def __deepcopy__(self, memo: dict[int, object]) -> ProcessGroupNeuron.Options: ...

    def __init__(self, store: Store, rank: int, size: int, options: Options) -> None: ...
    @property
    def options(self) -> Options: ...
    def leave(self) -> None: ...
    def perform_nocolor_split(self, device: torch.device) -> None: ...

class ReductionOrders:
    def __init__(
        self,
        units: int,
        begins: np.ndarray,
        ends: np.ndarray,
        which: np.ndarray,
        words: np.ndarray,
        lengths: np.ndarray,
    ) -> None: ...

class Plan:
    def __init__(
        self,
        algorithm: str,
        steps: int,
        seconds: float,
        orders: ReductionOrders | None,
        links: np.ndarray,
        link_seconds: np.ndarray,
    ) -> None: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def seconds(self) -> float: ...

class Op(Enum):
    all_reduce = ...
    reduce = ...
    reduce_scatter = ...

def set_planner_factory(
    factory: Callable[[ProcessGroupNeuron.Options, list[int], int], object] | None,
) -> None: ...
def execute_locally(
    op: Op,
    reduce_op: dist.ReduceOp | dist.ReduceOp.RedOpType,
    root: int,
    inputs: Sequence[Sequence[torch.Tensor]],
    outputs: Sequence[Sequence[torch.Tensor]],
    orders: ReductionOrders | None,
) -> None: ...

class Record:
    group: str
    op: str
    sequence_number: int
    bytes: int
    algorithm: str
    steps: int
    start: float
    end: float
    host_start: int
    host_end: int
    flight_id: int | None

def waits() -> dict[str, dict[str, Any]]: ...
def records() -> list[Record]: ...
def keep_records(capacity: int) -> None: ...
def flight_dump(with_stacks: bool = True) -> bytes: ...
