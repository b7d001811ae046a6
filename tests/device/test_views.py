"""Views alias: a write through a view is seen in the base, and no view copies."""

import pytest
import torch

VIEWS = {
    "view": lambda t: t.view(8, 6),
    "reshape": lambda t: t.reshape(-1),
    "as_strided": lambda t: t.as_strided((3, 2), (4, 1), 5),
    "transpose": lambda t: t.t(),
    "permute": lambda t: t.permute(1, 0),
    "expand": lambda t: t[:1].expand(5, -1)[0],
    "select": lambda t: t[3],
    "slice": lambda t: t[1:5, ::2],
    "narrow": lambda t: t.narrow(0, 2, 3),
    "diagonal": lambda t: t.diagonal(),
    "unfold": lambda t: t.unfold(0, 2, 2),
    "squeeze": lambda t: t.unsqueeze(0).squeeze(0),
    "split": lambda t: t.split(3)[1],
    "chunk": lambda t: t.chunk(2, 1)[1],
    "unbind": lambda t: t.unbind()[2],
    "movedim": lambda t: t.movedim(0, 1),
    "detach": lambda t: t.detach(),
    "view_dtype": lambda t: t.view(torch.int32),
    "unflatten": lambda t: t.unflatten(1, (2, 3)),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_write_through_a_view_reaches_the_base(view):
    base = torch.zeros(8, 6, device="neuron")
    result = view(base)
    assert result.device == base.device
    assert result.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    result.fill_(1)
    expected = torch.zeros(8, 6)
    view(expected).fill_(1)
    assert torch.equal(base.cpu(), expected)


def test_complex_and_real_views_alias():
    base = torch.zeros(3, dtype=torch.complex64, device="neuron")
    torch.view_as_real(base)[:, 1] = 2
    base.real.fill_(1)
    assert base.cpu().tolist() == [1 + 2j] * 3
    pairs = torch.zeros(3, 2, device="neuron")
    torch.view_as_complex(pairs).fill_(1 + 2j)
    assert pairs.cpu().tolist() == [[1, 2]] * 3


def test_lazy_conjugation_and_negation():
    base = torch.tensor([1 + 2j, 3 - 1j], device="neuron")
    assert base.conj().is_conj()
    assert base.conj().cpu().tolist() == [1 - 2j, 3 + 1j]
    assert base.conj().clone().cpu().tolist() == [1 - 2j, 3 + 1j]
    assert base.conj().imag.cpu().tolist() == [-2, 1]
    assert (base.conj() @ base).item() == 15
    target = torch.zeros(2, dtype=torch.complex64, device="neuron")
    target.conj().copy_(base)
    assert target.cpu().tolist() == [1 - 2j, 3 + 1j]


def test_a_view_remembers_its_base_for_autograd():
    base = torch.ones(4, device="neuron", requires_grad=True)
    doubled = base * 2
    doubled[1:3].mul_(5)
    doubled.sum().backward()
    assert base.grad.cpu().tolist() == [2, 10, 10, 2]


def test_a_view_keeps_its_memory_alive():
    view = torch.arange(1000, device="neuron")[10:12]
    torch.full((1000,), -1, device="neuron")
    assert view.tolist() == [10, 11]
