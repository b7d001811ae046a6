"""Every operator whose schema says that it returns a view aliases on neuron where it does on CPU."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

# What follows the base, a 4 x 6 tensor, in a call of each.
ARGUMENTS = {
    **dict.fromkeys(
        [
            *("_conj", "_neg_view", "adjoint", "alias", "conj", "contiguous", "detach", "imag", "lift_fresh"),
            *(
                "linalg_diagonal",
                "mH",
                "mH.a",
                "mT",
                "mT.a",
                "matrix_H",
                "matrix_H.a",
                "numpy_T",
                "numpy_T.a",
            ),
            *("positive", "ravel", "real", "resolve_conj", "resolve_neg", "squeeze", "t", "view_as_real"),
            *("_test_autograd_multiple_dispatch_view", "unbind.int", "diagonal", "flatten.using_ints"),
        ],
        (),
    ),
    "_reshape_alias": ((6, 4), (4, 1)),
    "as_strided": ((3, 2), (4, 1), 5),
    "broadcast_to": ((2, 4, 6),),
    "chunk": (2, 1),
    "dsplit.array": ([1],),
    "dsplit.int": (2,),
    "expand": ((2, 4, 6),),
    "expand_as": (torch.empty(2, 4, 6),),
    "hsplit.array": ([1, 3],),
    "hsplit.int": (2,),
    "movedim.int": (0, 1),
    "movedim.intlist": ([0], [1]),
    "moveaxis.int": (0, 1),
    "moveaxis.intlist": ([0], [1]),
    "narrow": (0, 1, 2),
    "narrow.Tensor": (0, torch.tensor(1), 2),
    "permute": ([1, 0],),
    "reshape": ((6, 4),),
    "reshape_as": (torch.empty(6, 4),),
    "select.int": (0, 2),
    "slice.Tensor": (1, 1, 5, 2),
    "slice_inverse": (torch.empty(4, 6), 0, 0, 4),
    "split": ((2, 4), 1),
    "split.Tensor": (3,),
    "split.sizes": ((1, 3),),
    "split_with_sizes": ([1, 3],),
    "squeeze.dim": (0,),
    "squeeze.dims": ([0, 1],),
    "swapaxes": (0, 1),
    "swapdims": (0, 1),
    "tensor_split.indices": ([1, 3],),
    "tensor_split.sections": (3,),
    "tensor_split.tensor_indices_or_sections": (torch.tensor([1, 3]),),
    "transpose.int": (0, 1),
    "unflatten.int": (1, (2, 3)),
    "unfold": (0, 2, 2),
    "unsqueeze": (1,),
    "view": ((6, 4),),
    "view.dtype": (torch.int32,),
    "view_as": (torch.empty(6, 4),),
    "view_as_complex": (),
    "vsplit.array": ([1],),
    "vsplit.int": (2,),
}
BASES = {
    "view_as_complex": (4, 2),
    "dsplit.int": (2, 3, 4),
    "dsplit.array": (2, 3, 4),
    "squeeze": (1, 4),
    "squeeze.dim": (1, 4),
    "squeeze.dims": (1, 1, 4),
}
COMPLEX = {"_conj", "imag", "view_as_real"}
ON_HOST = {"tensor_split.tensor_indices_or_sections", "narrow.Tensor"}  # wants its index there

# Of layouts and types that the device has not, of TorchScript's containers, or a copy unless nothing changes.
OTHERS = {
    *(
        "_autocast_to_full_precision",
        "_autocast_to_reduced_precision",
        "_fw_primal",
        "_make_dual",
        "_unpack_dual",
    ),
    *("_grad_sum_to_size", "_indices", "_ncf_unsqueeze", "_ncf_view", "_nested_get_values", "_values"),
    *("_nested_view_from_buffer", "_nested_view_from_jagged", "_sparse_broadcast_to", "_unwrap_optional"),
    *("__getitem__", "as_tensor", "ccol_indices", "coalesce", "col_indices", "cpu", "crow_indices", "cuda"),
    *(
        "get",
        "indices",
        "keys",
        "local_value",
        "pin_memory",
        "row_indices",
        "select.t",
        "to",
        "to_here",
        "values",
    ),
}


def view_operators() -> list[str]:
    """Names, with their overloads, of the operators whose result aliases an argument that is not written."""
    names = []
    for schema in torch._C._jit_get_all_schemas():
        notes = [result.alias_info for result in schema.returns]
        notes += [
            a.alias_info for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
        ]
        if not schema.name.startswith("aten::") or not any(notes) or any(n and n.is_write for n in notes):
            continue
        name = schema.name.removeprefix("aten::")
        full_name = f"{name}.{schema.overload_name}" if schema.overload_name else name
        if not {name, full_name} & OTHERS:
            names.append(full_name)
    return sorted(names)


VIEW_OPERATORS = view_operators()


def test_there_is_a_call_of_each():
    assert set(VIEW_OPERATORS) == set(ARGUMENTS)


@pytest.mark.parametrize("name", VIEW_OPERATORS)
def test_it_aliases_as_on_cpu(name):
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    seen = []
    for device in ("cpu", "neuron"):
        dtype = torch.complex64 if name in COMPLEX else torch.float32
        base = torch.ones(BASES.get(name, (4, 6)), dtype=dtype, device=device)
        move = name not in ON_HOST
        arguments = [a.to(device) if move and isinstance(a, torch.Tensor) else a for a in ARGUMENTS[name]]
        results = tree_leaves(op(base, *arguments))
        layouts = [
            (
                result.untyped_storage().data_ptr() == base.untyped_storage().data_ptr(),
                (result.shape, result.stride(), result.storage_offset(), result.dtype, result.is_conj()),
            )
            for result in results
        ]
        assert all(result.device == base.device for result in results)
        results[0].zero_()
        seen.append((layouts, base.cpu().resolve_conj().tolist()))
    assert seen[1] == seen[0]
