"""Every operator of torch's own database on neuron against CPU: values, and where the results lie."""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

SAMPLES = 4

# Of these only shapes, types and devices can agree.
RANDOM = {
    *(
        "bernoulli",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "normal",
        "normal.in_place",
    ),
    *("normal.number_mean", "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform"),
    *(
        "nn.functional.dropout",
        "nn.functional.dropout2d",
        "nn.functional.dropout3d",
        "nn.functional.alpha_dropout",
    ),
    *("nn.functional.feature_alpha_dropout.with_train", "nn.functional.rrelu"),
    *("nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"),
    *("nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward"),
    *("pca_lowrank", "svd_lowrank"),
}
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

SPARSE = "the device has dense tensors only"
EXCEPTIONS = {
    "to_sparse": SPARSE,
    "sparse.sampled_addmm": SPARSE,
    "sparse.mm.reduce": SPARSE,
    "tensor_split": "torch wants its indices on the host, for every device",
}

OPS = [
    op for op in op_db if torch.float32 in op.dtypes and not op.name.startswith("jiterator")
]  # that is CUDA's


def to_neuron(value):
    """Tensors with the same storage size, offset and strides on the device."""

    def move(leaf):
        if not isinstance(leaf, torch.Tensor):
            return "neuron" if leaf in ("cpu", torch.device("cpu")) else leaf
        if leaf.layout != torch.strided:
            return leaf.to("neuron")
        whole = torch.empty(0, dtype=leaf.dtype).set_(leaf.detach().untyped_storage()).to("neuron")
        moved = whole.set_(whole.untyped_storage(), leaf.storage_offset(), leaf.size(), leaf.stride())
        return torch._neg_view(moved) if leaf.is_neg() else moved.conj() if leaf.is_conj() else moved

    return tree_map(move, value)


@pytest.mark.full
@pytest.mark.parametrize("op", OPS, ids=[op.full_name for op in OPS])
def test_forward_agrees_with_cpu(op):
    if op.full_name in EXCEPTIONS:
        pytest.skip(EXCEPTIONS[op.full_name])
    for sample, _ in zip(op.sample_inputs("cpu", torch.float32), range(SAMPLES), strict=False):
        input_, args, kwargs = to_neuron((sample.input, sample.args, dict(sample.kwargs)))
        if kwargs.get("device") == "cpu":
            kwargs["device"] = "neuron"
        actual = tree_leaves(op(input_, *args, **kwargs))
        expected = tree_leaves(op(sample.input, *sample.args, **sample.kwargs))
        for ours, theirs in zip(actual, expected, strict=True):
            if not isinstance(theirs, torch.Tensor):
                assert ours == theirs
                continue
            assert ours.device.type == "neuron"
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            if op.full_name not in RANDOM | UNINITIALISED:
                assert ours.stride() == theirs.stride()
                torch.testing.assert_close(ours.cpu(), theirs.detach(), rtol=1e-4, atol=1e-5, equal_nan=True)
