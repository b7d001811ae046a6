"""Test inputs that every rank can compute for every other rank."""

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT8S = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
COMPLEX = (torch.complex64, torch.complex128)
ALL_DTYPES = (*FLOATS, *FLOAT8S, *SIGNED, *UNSIGNED, *COMPLEX, torch.bool)
# An empty tensor, less than a vector, odd, just around what rides in the control block, many blocks.
SIZES = (0, 1, 7, 1000, 4097, 70001)


def values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """``count`` CPU values of ``rank``: small, so that sums of a few stay exact or nearly so in every dtype."""
    generator = torch.Generator().manual_seed(1000 * rank + count)
    if dtype.is_complex or dtype.is_floating_point:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(count, dtype=wide, generator=generator).to(dtype)
    return torch.randint(0, 5, (count,), generator=generator).to(dtype)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in a dtype that every reduction can be computed in."""
    if tensor.dtype.is_complex or tensor.dtype in (torch.float64, torch.bool):
        return tensor
    return tensor.float() if tensor.dtype.is_floating_point else tensor.to(torch.int64)


def bits(tensor: torch.Tensor) -> bytes:
    """What must be equal where results are to be identical."""
    return tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
