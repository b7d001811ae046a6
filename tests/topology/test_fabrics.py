"""Builders and presets: chips, cores and links are those of the machine."""

import subprocess
import sys

import numpy as np
import pytest
from neuron_dist.topology import SwitchLevel, Topology, load, preset_names, switched, torus

CHIPS_AND_CORES = {
    "trn1.2xlarge": (1, 2),
    "trn1.32xlarge": (16, 32),
    "trn1n.32xlarge": (16, 32),
    "inf2.xlarge": (1, 2),
    "inf2.8xlarge": (1, 2),
    "inf2.24xlarge": (6, 12),
    "inf2.48xlarge": (12, 24),
    "trn2.3xlarge": (1, 4),
    "trn2.48xlarge": (16, 64),
    "trn2u.48xlarge": (16, 64),
    "trn2-ultraserver": (64, 256),
    "trn3-gen1-ultraserver": (64, 256),
    "trn3-gen2-ultraserver": (144, 576),
}


def test_importing_needs_no_torch() -> None:
    code = (
        "import sys, neuron_dist.topology, neuron_dist.collectives, neuron_dist.launcher.cli\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_instance_type_has_a_preset() -> None:
    assert set(preset_names()) == set(CHIPS_AND_CORES)


@pytest.mark.parametrize("name", CHIPS_AND_CORES)
def test_preset(name: str) -> None:
    topology = load(name)
    assert (topology.chips, topology.cores) == CHIPS_AND_CORES[name]
    for fact in topology.facts.values():
        assert fact.mark in ("documented", "derived", "inferred", "field", "given")
    unmarked = [name for name, fact in topology.facts.items() if fact.mark == "given"]
    assert set(unmarked) <= {"name", "description"}


@pytest.mark.parametrize(
    ("name", "egress"),
    [
        ("trn1.32xlarge", 384 / 2),
        ("trn1n.32xlarge", 768 / 2),
        ("inf2.48xlarge", 206 / 2),
        ("trn2.48xlarge", 1024 / 2),
        ("trn2-ultraserver", (1024 + 256) / 2),
        ("trn3-gen2-ultraserver", 704 / 2),
    ],
)
def test_per_chip_bandwidth_is_the_documented_total(name: str, egress: float) -> None:
    """AWS's GB/s per chip, taken as both directions; ``per_direction`` takes it as one."""
    assert load(name).egress_gbps == pytest.approx(egress)
    assert load(name, link_counting="per_direction").egress_gbps == pytest.approx(2 * egress)


def test_neighbours_in_the_order_of_neuron_ls() -> None:
    trn2 = load("trn2.48xlarge")
    assert trn2.neighbours(0) == [12, 3, 4, 1]
    assert trn2.neighbours(5) == [1, 4, 9, 6]
    assert trn2.neighbours(15) == [11, 14, 3, 12]
    assert load("inf2.48xlarge").neighbours(0) == [11, 1]


def test_ultraserver_joins_equal_places_of_its_instances() -> None:
    ultra = load("trn2-ultraserver")
    assert ultra.neighbours(0) == [48, 12, 3, 16, 4, 1]
    z = ultra.links.between(0, 16)
    assert ultra.links.gbps[z].tolist() == [64.0]


def test_lnc_1_has_one_core_per_physical_core() -> None:
    assert load("trn2.48xlarge", lnc=1).cores == 128
    assert load("trn2.48xlarge").hbm_gib / load("trn2.48xlarge").cores_per_chip == 24


def test_several_nodes_share_efa_by_chip() -> None:
    four = load("trn2.48xlarge*4")
    assert (four.chips, four.nodes, four.switches) == (64, 4, 1)
    assert four.egress_gbps[0] == 512 + 25


def test_a_dimension_of_two_has_one_link() -> None:
    assert len(torus((2,)).links) == 2
    assert len(torus((2, 4)).links) == 8 + 16
    assert len(torus((4, 4)).links) == 64


def test_bandwidth_by_dimension() -> None:
    links = torus((4, 8), (128, 64)).links
    rows = np.abs(links.src - links.dst) % 8 == 0
    assert set(links.gbps[rows]) == {128.0}
    assert set(links.gbps[~rows]) == {64.0}


def test_switch_levels_are_reached_in_two_links() -> None:
    fabric = switched((4, 4), [SwitchLevel(4, 100, 0.5), SwitchLevel(16, 50, 0.5)])
    assert fabric.switches == 5
    assert len(fabric.links) == 64
    assert fabric.egress_gbps[0] == 150


def test_inline_shapes() -> None:
    assert load("torus:4x4x4").dims == (4, 4, 4)
    assert load("ring:8").chips == 8
    assert load("switch:16").switches == 1
    assert load("torus:4x8@128,64").links.gbps.min() == 64


def test_coordinates_are_row_major_and_invertible() -> None:
    topology: Topology = load("trn2.48xlarge*2")
    chips = np.arange(topology.chips)
    where = topology.coordinates(chips)
    assert where[21].tolist() == [1, 1, 1]
    assert (topology.chip_at(where) == chips).all()
