"""Which algorithm runs: by price, by a selection string, by Neuron's limits; and sizes as people write."""

import pytest
from neuron_dist.collectives import (
    CollectiveError,
    Unsupported,
    build,
    choose,
    parse_selection,
    price,
    profiles,
)
from neuron_dist.collectives.sizes import format_size, parse_size, parse_sizes
from neuron_dist.topology import Group, load

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(scope="module")
def trn2() -> Group:
    return Group(load("trn2.48xlarge"))


@pytest.mark.parametrize("size", [KIB, 256 * KIB, 16 * MIB, 1024 * MIB])
def test_the_cheapest_by_default(trn2: Group, size: int) -> None:
    chosen = choose("all_reduce", trn2, size)
    costs = {name: costs.price(size).time_us for name, costs in profiles("all_reduce", trn2).items()}
    assert costs[chosen] == min(costs.values())


@pytest.mark.parametrize(
    ("size", "expected"), [(MIB - 1, "mesh"), (MIB, "rdh"), (56 * MIB - 1, "rdh"), (56 * MIB, "kangaring")]
)
def test_neurons_published_limits(trn2: Group, size: int, expected: str) -> None:
    assert choose("all_reduce", trn2, size, selection="neuron") == expected


def test_ring_where_kangaring_cannot_serve() -> None:
    one_core_per_chip = Group(load("trn2.48xlarge"), range(0, 64, 4))
    assert choose("all_reduce", one_core_per_chip, 64 * MIB, selection="neuron") == "ring"


def test_a_selection_of_ones_own(trn2: Group) -> None:
    text = "all_reduce=mesh1:0-4K;swing:4K-1M all_gather=bruck:0-"
    assert choose("all_reduce", trn2, 100, selection=text) == "mesh1"
    assert choose("all_reduce", trn2, 4 * KIB, selection=text) == "swing"
    assert choose("all_gather", trn2, 1 << 30, selection=text) == "bruck"
    # No rule covers these: the cheapest.
    assert choose("all_reduce", trn2, MIB, selection=text) == choose("all_reduce", trn2, MIB)
    assert choose("broadcast", trn2, MIB, selection=text) == choose("broadcast", trn2, MIB)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("mesh:0-1M", "expected OP=ALGORITHM"),
        ("all_sum=mesh:0-1M", "with a known op"),
        ("all_reduce=mesh", "expected ALGORITHM:FIRST-LAST"),
        ("all_reduce=mesh:1M", "expected ALGORITHM:FIRST-LAST"),
        ("all_reduce=mesh:1M-1K", "an empty range"),
        ("all_reduce=mesh:0-1X", "size '1X'"),
    ],
)
def test_selections_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(CollectiveError, match=message):
        parse_selection(text)


def test_an_algorithm_file_may_be_selected() -> None:
    (rule,) = parse_selection("all_reduce=my/file.py:mine:0-1M")["all_reduce"]
    assert (rule.algorithm, rule.high) == ("my/file.py:mine", MIB)


def test_sizes() -> None:
    assert [parse_size(text) for text in ("0", "512", "64K", "1.5M", "2GiB", "1kb")] == [
        0,
        512,
        65536,
        1572864,
        2 << 30,
        1024,
    ]
    assert parse_sizes("1K:8K") == [1024, 2048, 4096, 8192]
    assert parse_sizes("1K:1G:1024") == [1024, MIB, 1 << 30]
    assert parse_sizes("1M,3") == [MIB, 3]
    assert [format_size(size) for size in (0, 1000, 1024, 3 << 19, 1 << 30)] == [
        "0",
        "1000",
        "1K",
        "1536K",
        "1G",
    ]
    for text in ("", "x", "-1", "1Q", "1e99", "99999999999T", "1K:", "8K:1K", "1K:2K:1", "0:1K", "1:2:3:4"):
        with pytest.raises(CollectiveError, match="size"):
            parse_sizes(text)


def test_point_to_point_ops() -> None:
    group = Group(load("torus:4x4"))
    ring = tuple((rank, (rank + 1) % 4) for rank in range(4))
    schedule = build("permute", "direct", group, pairs=ring)
    assert price(schedule, group, MIB).beta_us == pytest.approx(MIB / 128e3)
    one = build("send_recv", "direct", group, pairs=((0, 5),))
    assert price(one, group, MIB).alpha_us == 2.0
    for pairs, message in (((), "no"), (((0, 99),), "99"), (((0, 1), (2, 1)), "target twice")):
        with pytest.raises(Unsupported, match=message):
            build("permute", "direct", group, pairs=pairs)
    with pytest.raises(Unsupported, match="one algorithm, direct"):
        build("permute", "ring", group, pairs=ring)


def test_requests_that_make_no_sense() -> None:
    group = Group(load("torus:4x4"))
    with pytest.raises(CollectiveError, match="op 'sum'"):
        build("sum", "ring", group)
    with pytest.raises(CollectiveError, match="algorithm 'quick': expected one of ring"):
        build("all_reduce", "quick", group)
    with pytest.raises(CollectiveError, match="root=16 is not a rank"):
        build("broadcast", "tree", group, root=16)
    with pytest.raises(Unsupported, match="kangaring: needs all ranks of each chip"):
        build("all_reduce", "kangaring", group)
    with pytest.raises(Unsupported, match="mesh1"):
        build("all_gather", "mesh1", group)
