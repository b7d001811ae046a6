"""Every operator of torch's own database on neuron against CPU: values, and that outputs stay on the device."""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

# Operators whose results are not comparable, or that the device does not have.
RANDOM = "draws random numbers, from another generator than CPU's"
UNINITIALISED = "returns memory as it finds it"
EXCEPTIONS: dict[str, str] = {}
SAMPLES = 4

OPS = [op for op in op_db if torch.float32 in op.dtypes]


def to_neuron(value):
    return tree_map(
        lambda leaf: leaf.detach().clone().to("neuron") if isinstance(leaf, torch.Tensor) else leaf, value
    )


@pytest.mark.full
@pytest.mark.parametrize("op", OPS, ids=[op.full_name for op in OPS])
def test_forward_agrees_with_cpu(op):
    if op.full_name in EXCEPTIONS:
        pytest.skip(EXCEPTIONS[op.full_name])
    for sample, _ in zip(op.sample_inputs("cpu", torch.float32), range(SAMPLES), strict=False):
        args, kwargs = to_neuron((sample.args, dict(sample.kwargs)))
        if "device" in kwargs:
            kwargs["device"] = "neuron"
        expected = op(sample.input, *sample.args, **sample.kwargs)
        actual = op(to_neuron(sample.input), *args, **kwargs)
        for ours, theirs in zip(tree_flatten(actual)[0], tree_flatten(expected)[0], strict=True):
            if isinstance(theirs, torch.Tensor):
                assert ours.device.type == "neuron"
                torch.testing.assert_close(ours.cpu(), theirs.detach(), rtol=1e-4, atol=1e-5, equal_nan=True)
            else:
                assert ours == theirs
