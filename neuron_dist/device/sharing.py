"""Neuron tensors through ``torch.multiprocessing``: queues, pipes and DataLoader workers.

Every process simulates its own HBM, so a tensor that crosses is copied: by way of shared host memory, onto
the device of the same index.
"""

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

Reduced = tuple[Any, ...]


def teach_pickler() -> None:
    """Replace torch's reductions, which share host memory only, for tensors and storages on the device."""
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


def _reduce_tensor(tensor: torch.Tensor) -> Reduced:
    if tensor.device.type != "neuron":
        return reductions.reduce_tensor(tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        return _raise, (
            "a tensor with a history of autograd cannot cross to another process: detach() it first",
        )
    try:
        host = tensor.detach().cpu()
    except RuntimeError as error:
        return _raise, (str(error),)
    return _rebuild_tensor, (type(tensor), host, tensor.device.index, tensor.requires_grad)


def _reduce_storage(storage: torch.UntypedStorage) -> Reduced:
    if storage.device.type != "neuron":
        return reductions.reduce_storage(storage)
    try:
        return _rebuild_storage, (storage.cpu(), storage.device.index)
    except RuntimeError as error:
        return _raise, (str(error),)


def _rebuild_tensor(kind: type, host: torch.Tensor, index: int, requires_grad: bool) -> torch.Tensor:
    tensor = host.to(torch.device("neuron", index))
    if issubclass(kind, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _rebuild_storage(host: torch.UntypedStorage, index: int) -> torch.UntypedStorage:
    return host.to(device=torch.device("neuron", index))


def _raise(message: str) -> None:
    """In the receiver: the sender's queue would drop what it cannot pickle, and the receiver wait forever."""
    raise RuntimeError(message)
