"""The caching allocator: statistics, reuse, release, and running out."""

import math
import random
import threading

import pytest
import torch

from tests.device.helpers import output_of

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _empty_cache():
    torch.neuron.empty_cache()
    torch.neuron.reset_peak_memory_stats(7)
    torch.neuron.reset_accumulated_memory_stats(7)


def empty(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="neuron:7")


def stat(name: str) -> int:
    return torch.neuron.memory_stats(7)[name]


def test_allocated_bytes_follow_tensors_rounded_to_512():
    before = torch.neuron.memory_allocated(7)
    tensor = empty(1)
    assert torch.neuron.memory_allocated(7) - before == 512
    assert stat("requested_bytes.all.current") == 1
    del tensor
    assert torch.neuron.memory_allocated(7) == before


def test_memory_stays_reserved_until_the_cache_is_emptied():
    tensor = empty(40 * MIB)
    assert torch.neuron.memory_reserved(7) == 40 * MIB
    del tensor
    assert torch.neuron.memory_reserved(7) == 40 * MIB
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved(7) == 0
    assert torch.neuron.max_memory_reserved(7) == 40 * MIB


def test_freed_memory_is_used_again():
    address = empty(40 * MIB).data_ptr()
    assert empty(40 * MIB).data_ptr() == address
    assert stat("num_device_alloc") == 1


def test_freed_neighbours_coalesce():
    parts = [empty(4 * MIB) for _ in range(5)]  # one 20 MiB segment
    first = parts[0].data_ptr()
    del parts
    whole = empty(9 * MIB)
    assert whole.data_ptr() == first
    assert torch.neuron.memory_reserved(7) == 20 * MIB


def test_small_and_large_requests_have_segments_of_their_own():
    small, large = empty(1000), empty(12 * MIB)
    assert stat("segment.small_pool.current") == 1
    assert stat("segment.large_pool.current") == 1
    assert stat("reserved_bytes.small_pool.current") == 2 * MIB
    del small, large


def test_addresses_are_aligned():
    assert all(empty(size).data_ptr() % 512 == 0 for size in (1, 511, 513, 5 * MIB))


def test_empty_tensors_take_no_memory():
    before = torch.neuron.memory_allocated(7)
    tensor = empty(0)
    assert tensor.device.index == 7
    assert torch.neuron.memory_allocated(7) == before


def test_peak_can_be_reset():
    del_me = empty(30 * MIB)
    del del_me
    assert torch.neuron.max_memory_allocated(7) >= 30 * MIB
    torch.neuron.reset_peak_memory_stats(7)
    assert torch.neuron.max_memory_allocated(7) < 30 * MIB


def test_memory_info_counts_what_is_reserved():
    free, total = torch.neuron.mem_get_info(7)
    tensor = empty(32 * MIB)
    assert torch.neuron.mem_get_info(7) == (free - 32 * MIB, total)
    assert torch.accelerator.get_memory_info(7) == (free - 32 * MIB, total)
    del tensor


def test_out_of_memory_names_device_request_use_and_capacity():
    held = empty(MIB)
    with pytest.raises(
        torch.OutOfMemoryError,
        match=r"neuron:7 out of memory. Tried to allocate 30.00 GiB. "
        r"The device has 24.00 GiB of HBM; 1.00 MiB are in use",
    ):
        empty(30 << 30)
    assert stat("num_ooms") == 1
    del held


def test_a_small_device_can_be_filled_and_used_again():
    print_ = output_of(
        """
        import torch
        def block(): return torch.empty(10 << 20, dtype=torch.uint8, device="neuron")
        held = [block() for _ in range(3)]
        try:
            block()
        except torch.OutOfMemoryError as error:
            assert "32.00 MiB of HBM" in str(error), error
        del held[1], held[0]
        torch.empty(20 << 20, dtype=torch.uint8, device="neuron")  # of two given back
        print(torch.neuron.memory_stats()["num_ooms"], torch.neuron.memory_stats()["num_alloc_retries"])
        """,
        NEURON_SIM_HBM="32MiB",
    )
    assert print_ == "1 2"


def test_tensors_fill_a_device_to_its_end():
    code = """
        import torch
        held = [torch.empty(8 << 20, dtype=torch.uint8, device="neuron") for _ in range(4)]
        assert len({tensor.data_ptr() for tensor in held}) == 4
        for index, tensor in enumerate(held):
            tensor.fill_(index)
        print([(tensor[0].item(), tensor[-1].item()) for tensor in held])
        print(torch.neuron.memory_reserved() >> 20)
        del held, tensor
        torch.neuron.empty_cache()
        whole = torch.empty(32 << 20, dtype=torch.uint8, device="neuron")
        print(whole.numel() >> 20, torch.neuron.memory_reserved() >> 20)
    """
    expected = ["[(0, 0), (1, 1), (2, 2), (3, 3)]", "32", "32 32"]
    assert output_of(code, NEURON_SIM_HBM="32MiB").splitlines() == expected


def test_memory_fraction_limits_the_device():
    torch.neuron.set_per_process_memory_fraction(0.001, 7)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="limited to"):
            empty(100 * MIB)
    finally:
        torch.neuron.set_per_process_memory_fraction(1.0, 7)
    empty(100 * MIB)


def test_outputs_of_kernels_count_as_device_memory():
    tensor = torch.zeros(1024, device="neuron:7")
    before = torch.neuron.memory_allocated(7)
    result = tensor + 1
    assert torch.neuron.memory_allocated(7) - before == 4096
    assert result.device.index == 7


def test_summary_has_the_figures():
    tensor = empty(5 * MIB)
    summary = torch.neuron.memory_summary(7)
    assert "neuron:7" in summary
    assert "Allocated memory (large)" in summary
    assert "(large)" not in torch.neuron.memory_summary(7, abbreviated=True)
    del tensor


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fragments_stay_few_under_a_soak(seed):
    choose = random.Random(seed)
    held: list[torch.Tensor] = []
    live = 0
    for _ in range(1000):
        size = int(math.exp(choose.uniform(math.log(512), math.log(32 * MIB))))
        while live + size > 256 * MIB:
            live -= held.pop(choose.randrange(len(held))).numel()
        held.append(empty(size))
        live += size
    assert stat("reserved_bytes.all.peak") <= 1.3 * stat("requested_bytes.all.peak")
    for index, tensor in enumerate(held):
        tensor.fill_(index % 256)
    assert all(bool((tensor == index % 256).all()) for index, tensor in enumerate(held))
    del held, tensor
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved(7) == 0


def test_threads_allocate_and_free_together():
    before = torch.neuron.memory_allocated(7)
    failures = []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator().manual_seed(seed)
            held: list[torch.Tensor] = []
            for _ in range(300):
                size = int(torch.randint(1, 1 << 16, (1,), generator=generator))
                held.append(torch.full((size,), seed, dtype=torch.int32, device="neuron:7"))
                if len(held) > 8:
                    assert bool((held.pop(0) + 1 == seed + 1).all())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert torch.neuron.memory_allocated(7) == before
