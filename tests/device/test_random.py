"""Random numbers: reproducible, per device, and a function of (seed, offset + i) alone."""

import pytest
import torch

DRAWS = {
    "uniform": lambda t, g: t.uniform_(-1, 3, generator=g),
    "normal": lambda t, g: t.normal_(1, 2, generator=g),
    "exponential": lambda t, g: t.exponential_(2, generator=g),
    "bernoulli": lambda t, g: t.bernoulli_(0.3, generator=g),
    "geometric": lambda t, g: t.geometric_(0.3, generator=g),
    "cauchy": lambda t, g: t.cauchy_(generator=g),
    "log_normal": lambda t, g: t.log_normal_(generator=g),
    "random": lambda t, g: t.random_(0, 200, generator=g),
}
HOST_DRAWS = {
    "randperm": lambda g: torch.randperm(50, device="neuron", generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(50, device="neuron"), 20, generator=g),
    "poisson": lambda g: torch.poisson(torch.full((50,), 4.0, device="neuron"), generator=g),
}


def generator(seed: int = 3, offset: int = 0) -> torch.Generator:
    made = torch.Generator("neuron").manual_seed(seed)
    made.set_offset(offset)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_a_shard_draws_its_part_of_the_whole(draw, dtype):
    whole = draw(torch.empty(16, 12, dtype=dtype, device="neuron"), generator())
    shards = [
        draw(torch.empty(4, 12, dtype=dtype, device="neuron"), generator(offset=48 * i)) for i in range(4)
    ]
    assert torch.equal(torch.cat(shards), whole)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_values_do_not_depend_on_strides_or_threads(draw):
    whole = draw(torch.empty(300, 500, device="neuron"), generator())
    strided = draw(torch.empty(500, 300, device="neuron").t(), generator())
    assert torch.equal(strided, whole)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert torch.equal(draw(torch.empty(300, 500, device="neuron"), generator()), whole)
    torch.set_num_threads(threads)


def test_the_offset_moves_by_the_elements_rounded_up_to_four():
    source = generator()
    torch.empty(7, device="neuron").uniform_(generator=source)
    assert source.get_offset() == 8
    torch.empty(4, 4, device="neuron").normal_(generator=source)
    assert source.get_offset() == 24


@pytest.mark.parametrize("draw", HOST_DRAWS.values(), ids=HOST_DRAWS.keys())
def test_operators_that_draw_on_the_host_use_the_state_too(draw):
    source = generator()
    first, second = draw(source), draw(source)
    assert not torch.equal(first, second)
    assert torch.equal(draw(generator()), first)
    assert torch.equal(draw(generator(offset=4)), second)


def test_moments():
    count = 200_000
    normal = torch.empty(count, device="neuron").normal_(1, 2, generator=generator()).cpu()
    assert abs(normal.mean().item() - 1) < 0.03
    assert abs(normal.std().item() - 2) < 0.03
    uniform = torch.empty(count, device="neuron").uniform_(generator=generator()).cpu()
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert torch.histc(uniform, 10, 0, 1).sub(count / 10).abs().max() < 600
    assert abs(torch.corrcoef(torch.stack([normal[:-1], normal[1:]]))[0, 1].item()) < 0.01
    chance = torch.full((count,), 0.3, device="neuron")
    assert abs(torch.bernoulli(chance, generator=generator()).mean().item() - 0.3) < 0.01


def test_bernoulli_takes_a_chance_for_each_element():
    chance = torch.tensor([0.0, 1.0], device="neuron")
    assert torch.empty(100, 2, device="neuron").bernoulli_(chance).mean(0).tolist() == [0, 1]


def test_arguments_are_checked_as_on_cpu():
    tensor = torch.empty(3, device="neuron")
    with pytest.raises(RuntimeError, match=r"normal expects std >= 0\.0"):
        tensor.normal_(0, -1)
    with pytest.raises(RuntimeError, match="'from' to be less than 'to'"):
        tensor.random_(5, 5)
    with pytest.raises(RuntimeError, match="Expected a 'neuron' device type for generator but found 'cpu'"):
        tensor.uniform_(generator=torch.Generator())


def test_manual_seed_seeds_every_device():
    torch.manual_seed(11)
    first = [torch.rand(5, device=f"neuron:{i}").cpu() for i in range(2)]
    torch.manual_seed(11)
    assert torch.neuron.initial_seed() == 11
    assert all(torch.equal(torch.rand(5, device=f"neuron:{i}").cpu(), first[i]) for i in range(2))


def test_state_is_seed_and_offset():
    torch.neuron.manual_seed(258)
    torch.rand(5, device="neuron")
    state = torch.neuron.get_rng_state()
    assert state.tolist() == [2, 1, *[0] * 6, 8, *[0] * 7]
    expected = torch.rand(9, device="neuron")
    torch.neuron.set_rng_state(state)
    assert torch.equal(torch.rand(9, device="neuron"), expected)
    with pytest.raises(RuntimeError, match="has 16 bytes, not 8"):
        torch.neuron.set_rng_state(torch.zeros(8, dtype=torch.uint8))


def test_states_of_all_devices():
    states = torch.neuron.get_rng_state_all()
    expected = torch.rand(3, device="neuron:1")
    torch.neuron.set_rng_state_all(states)
    assert torch.equal(torch.rand(3, device="neuron:1"), expected)


def test_fork_rng_restores():
    before = torch.neuron.get_rng_state(0)
    with torch.random.fork_rng(devices=[0], device_type="neuron"):
        torch.rand(5, device="neuron:0")
    assert torch.equal(torch.neuron.get_rng_state(0), before)


def test_a_generator_can_be_cloned():
    source = generator()
    torch.empty(4, device="neuron").uniform_(generator=source)
    copy = source.clone_state()
    assert copy.get_offset() == 4
    first = torch.rand(3, device="neuron", generator=source)
    assert torch.equal(torch.rand(3, device="neuron", generator=copy), first)


def test_dropout_draws_from_the_device_and_scales():
    torch.neuron.manual_seed(1)
    before = torch.get_rng_state()
    tensor = torch.ones(10_000, device="neuron", requires_grad=True)
    dropped = torch.nn.functional.dropout(tensor, 0.25)
    dropped.sum().backward()
    assert torch.equal(tensor.grad, dropped)
    assert dropped.unique().tolist() == pytest.approx([0, 4 / 3])
    assert abs(dropped.mean().item() - 1) < 0.03
    assert torch.equal(torch.get_rng_state(), before)
    torch.neuron.manual_seed(1)
    assert torch.equal(torch.nn.functional.dropout(tensor, 0.25), dropped)


def test_activation_checkpointing_replays_dropout():
    from torch.utils.checkpoint import checkpoint

    tensor = torch.ones(1000, device="neuron", requires_grad=True)
    result = checkpoint(lambda t: torch.nn.functional.dropout(t * 2, 0.5), tensor, use_reentrant=False)
    result.sum().backward()
    assert torch.equal(tensor.grad, result.detach())
