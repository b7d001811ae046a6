"""Every operator of torch's own database on neuron against CPU: values, layout, aliasing, errors."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.bool]
TOLERANCES = {  # relative, absolute
    torch.bfloat16: (5e-2, 3e-2),
    torch.float32: (1e-4, 5e-5),
    torch.complex64: (1e-4, 5e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
}
SEED = 42  # of the database's own calls
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

SPARSE = "the device has dense tensors only"
EXCEPTIONS = {
    "to_sparse": SPARSE,
    "sparse.sampled_addmm": SPARSE,
    "sparse.mm.reduce": SPARSE,
    "tensor_split": "torch wants its indices on the host, for every device",
}

OPS = [
    op for op in op_db if not op.name.startswith("jiterator") and op.full_name not in EXCEPTIONS
]  # that is CUDA's
SHARD = [op for op in OPS[::20] if torch.float32 in op.dtypes]
CASES = [(op, dtype) for op in OPS for dtype in DTYPES if dtype in op.dtypes]
IDS = [f"{op.full_name}-{str(dtype).removeprefix('torch.')}" for op, dtype in CASES]


def on_neuron(value: Any) -> Any:
    """The same tensors on the device, with their storage sizes, offsets and strides; "cpu" is "neuron"."""

    moved_before: dict[int, torch.Tensor] = {}  # a tensor that is given twice stays one

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return "neuron" if leaf in ("cpu", torch.device("cpu")) else leaf
        if id(leaf) in moved_before:
            return moved_before[id(leaf)]
        whole = torch.empty(0, dtype=leaf.dtype).set_(leaf.detach().untyped_storage()).to("neuron")
        moved = whole.set_(whole.untyped_storage(), leaf.storage_offset(), leaf.size(), leaf.stride())
        moved = torch._neg_view(moved) if leaf.is_neg() else moved
        moved = moved.conj() if leaf.is_conj() else moved
        moved_before[id(leaf)] = moved.requires_grad_(leaf.requires_grad)
        return moved

    return tree_map(move, value)


@pytest.fixture(autouse=True)
def _let_random_numbers_show(monkeypatch):
    """The database hides what its calls draw: it seeds before each and restores the state after it."""
    monkeypatch.setattr("torch.testing._utils.freeze_rng_state", contextlib.nullcontext)


class Outcome:
    """What a call gave on one device: its results or its error, and whether it drew random numbers."""

    def __init__(self, call: Callable[[], Any], inputs: list[Any], device: Any) -> None:
        self.inputs = [leaf for leaf in inputs if isinstance(leaf, torch.Tensor)]
        self.placed = bool(self.inputs) or any(
            leaf == "neuron" for leaf in inputs if isinstance(leaf, str)
        )  # else nothing says where results belong
        torch.manual_seed(SEED)
        before = device.get_rng_state()
        self.error: Exception | None = None
        self.results: list[Any] = []
        try:
            self.results = tree_leaves(call())
        except Exception as error:
            self.error = error
        self.random = not torch.equal(before, device.get_rng_state())

    def shares(self) -> list[list[bool]]:
        """Which results lie in the storage of which inputs."""
        return [
            [storage_of(result) == storage_of(leaf) for leaf in self.inputs]
            for result in self.results
            if isinstance(result, torch.Tensor) and result.numel()
        ]


def storage_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def check(op: OpInfo, theirs: Outcome, ours: Outcome, layout: bool = True) -> None:
    """Ours agrees with CPU's; ``layout``: in its strides too, which torch leaves open for gradients."""
    if theirs.error is not None:
        assert type(ours.error) is type(theirs.error), f"CPU: {theirs.error!r}, neuron: {ours.error!r}"
        return
    if ours.error is not None:
        raise ours.error
    assert ours.random or not theirs.random
    assert ours.shares() == theirs.shares()
    for mine, expected in zip(ours.results, theirs.results, strict=True):
        if not isinstance(expected, torch.Tensor):
            assert mine == expected
            continue
        assert mine.device.type == "neuron" or not ours.placed
        same(mine, expected, not theirs.random and op.name not in UNINITIALISED, layout)


def same(mine: torch.Tensor, expected: torch.Tensor, values: bool = True, layout: bool = True) -> None:
    assert (mine.shape, mine.dtype) == (expected.shape, expected.dtype)
    assert not layout or mine.stride() == expected.stride()
    assert (mine.is_conj(), mine.is_neg()) == (expected.is_conj(), expected.is_neg())
    if values:
        # The kernels are the same, but the order of their sums depends on the alignment of memory.
        rtol, atol = TOLERANCES.get(expected.dtype, (0, 0))
        torch.testing.assert_close(
            mine.detach().cpu(), expected.detach(), rtol=rtol, atol=atol, equal_nan=True
        )


def call_both(
    op: OpInfo, sample: SampleInput, function: Callable[..., Any], **outs: Any
) -> tuple[Outcome, Outcome]:
    """On CPU with the sample itself, on neuron with a copy made before."""
    theirs = (sample.input, sample.args, {**sample.kwargs, **outs})
    ours = on_neuron(theirs)
    outcomes = []
    for device, (input_, args, kwargs) in ((torch, theirs), (torch.neuron, ours)):
        call = functools.partial(function, input_, *args, **kwargs)
        outcomes.append(Outcome(call, tree_leaves((input_, args, kwargs)), device))
    check(op, *outcomes)
    return outcomes[0], outcomes[1]


def check_out(op: OpInfo, sample: SampleInput, expected: Outcome) -> None:
    """Into tensors of the right size, and into empty ones that have to grow."""
    if (
        expected.error
        or not expected.results
        or not all(isinstance(r, torch.Tensor) for r in expected.results)
    ):
        return

    def into(*args: Any, out: Any, **kwargs: Any) -> Any:
        return op(*args, out=out, **kwargs), out

    for make in (torch.empty_like, lambda result: result.new_empty(0)):
        outs = [make(result.detach()).zero_() for result in expected.results]
        call_both(op, sample, into, out=outs[0] if len(outs) == 1 else tuple(outs))


def check_gradients(op: OpInfo, sample: SampleInput) -> None:
    """Of every input that wants one, for a gradient of ones from every output."""
    theirs, ours = call_both(op, sample, op)
    if theirs.error or theirs.random:
        return
    gradients = []
    for outcome in (theirs, ours):
        wanted = [leaf for leaf in outcome.inputs if leaf.requires_grad]
        outputs = [r for r in outcome.results if isinstance(r, torch.Tensor) and r.requires_grad]
        call = functools.partial(gradients_of, outputs, wanted)
        gradients.append(Outcome(call, wanted, torch if outcome is theirs else torch.neuron))
    check(op, *gradients, layout=False)


def gradients_of(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    if not outputs or not inputs:
        return []
    ones = [torch.ones_like(output) for output in outputs]
    return list(torch.autograd.grad(outputs, inputs, ones, allow_unused=True))


def compare(op: OpInfo, dtype: torch.dtype, limit: int | None) -> None:
    def samples(**options: bool) -> Iterator[SampleInput]:
        return itertools.islice(op.sample_inputs("cpu", dtype, **options), limit)

    for sample in samples():
        theirs, _ = call_both(op, sample, op)
        if op.supports_out:
            check_out(op, sample, theirs)
        if op.inplace_variant is not None:
            call_both(op, sample, op.inplace_variant)
    for sample in samples():
        call_both(op, sample.noncontiguous(), op)
    if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
        for sample in samples(requires_grad=True):
            check_gradients(op, sample)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), CASES, ids=IDS)
def test_it_agrees_with_cpu(op, dtype):
    compare(op, dtype, limit=None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", SHARD, ids=[op.full_name for op in SHARD])
def test_a_shard_agrees_with_cpu(op):
    compare(op, torch.float32, limit=2)
