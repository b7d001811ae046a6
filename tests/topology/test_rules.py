"""The lint: what the runtime is documented, or was seen, to accept and refuse."""

import pytest
from neuron_dist.topology import load, parse_cores
from neuron_dist.topology.rules import lint, worst


def level(topology: str, cores: str, **options: object) -> str:
    return worst(lint(load(topology), [parse_cores(cores)], **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ("0-63", "ok"),
        ("0-3", "ok"),
        ("0-15", "ok"),  # a row of chips
        ("0-31", "ok"),  # two rows
        ("0-15,48-63", "ok"),  # rows 3 and 0 are neighbours around the wrap
        ("0-7,16-23", "ok"),  # two rows, two columns
        ("0-60:4", "ok"),  # one core of every chip
        ("0-3,16-19,32-35,48-51", "ok"),  # a column
        ("0,32", "reject"),  # chips two hops apart
        ("0-11", "reject"),  # three chips in a line
        ("0-15,32-47", "reject"),  # rows 0 and 2
        ("0-3,4-6,7,20", "reject"),  # unlike numbers of cores
        ("0,1,6,7", "reject"),  # unlike core offsets
        ("0-12:4", "warn"),  # reports disagree
        ("0-7", "warn"),
    ],
)
def test_trn2_replica_groups(cores: str, expected: str) -> None:
    assert level("trn2.48xlarge", cores) == expected


def test_rejection_quotes_the_runtime() -> None:
    (finding,) = [f for f in lint(load("trn2.48xlarge"), [[0, 32]]) if f.level == "reject"]
    assert finding.runtime == (
        "ENC:enc_init_comm failed (2) to init a collective algorithm. "
        "reason: no_hier no_mesh replica-group: [0, 32] (NRT_INVALID)"
    )


def test_trn3_takes_strided_groups() -> None:
    assert level("trn3-gen2-ultraserver", "0,32") == "ok"


@pytest.mark.parametrize(
    ("cores", "expected"),
    [("0-1", "ok"), ("0-7", "ok"), ("0-31", "ok"), ("0-23", "reject"), ("4-11", "warn")],
)
def test_trn1_sizes(cores: str, expected: str) -> None:
    assert level("trn1.32xlarge", cores) == expected


def test_inf2_takes_24() -> None:
    assert level("inf2.48xlarge", "0-23") == "ok"


def test_nodes_must_be_symmetric() -> None:
    assert level("trn2.48xlarge*2", "0-127") == "ok"
    assert level("trn2.48xlarge*2", "0-3,64-67") == "ok"
    assert level("trn2.48xlarge*2", "0-3,68-71") == "reject"


@pytest.mark.parametrize(
    ("cores", "options", "expected"),
    [
        ("0-15", {}, "ok"),
        ("0-1", {}, "reject"),
        ("4-7", {}, "ok"),
        ("0-3", {"uneven": True}, "reject"),
    ],
)
def test_all_to_all(cores: str, options: dict[str, bool], expected: str) -> None:
    assert level("trn2.48xlarge", cores, op="all_to_all", **options) == expected


def test_barrier_is_for_the_world() -> None:
    assert level("trn2.48xlarge", "0-63", op="barrier") == "ok"
    assert level("trn2.48xlarge", "0-3", op="barrier") == "reject"


def test_permute_is_a_ring_over_wires() -> None:
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert level("torus:4x4", "0-3", op="permute", pairs=ring) == "ok"
    assert level("torus:4x4", "0-3", op="permute", pairs=[(0, 1), (1, 0), (2, 3), (3, 2)]) == "reject"
    assert level("torus:4x4", "0-3", op="permute", pairs=[(0, 2), (2, 1), (1, 3), (3, 0)]) == "reject"
    assert level("torus:4x4", "0-3", op="permute", pairs=[(0, 9), (9, 0)]) == "reject"
    assert level("torus:4x4", "0-3", op="permute") == "reject"


def test_groups_must_not_overlap() -> None:
    findings = lint(load("trn2.48xlarge"), [range(32), range(16, 48)])
    assert [(f.group, f.rule) for f in findings if f.level == "reject"] == [(1, "disjoint-groups")]
