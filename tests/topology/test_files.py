"""Users' own topology files: what works, and one line naming file, field and value for what does not."""

import json
from pathlib import Path
from typing import Any

import pytest
from neuron_dist.topology import TopologyError, load

GOOD: dict[str, Any] = {
    "fabric": "torus",
    "dims": [2, 3],
    "physical_cores_per_chip": 4,
    "lnc": 2,
    "link_gbps": {"value": 100, "mark": "documented", "source": "a data sheet"},
    "link_us": 1.5,
}


def written(folder: Path, **changes: Any) -> str:
    fields = {name: value for name, value in (GOOD | changes).items() if value is not None}
    path = folder / "my.json"
    path.write_text(json.dumps(fields))
    return str(path)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    topology = load(written(tmp_path))
    assert (topology.chips, topology.cores) == (6, 12)
    assert topology.links.gbps.tolist() == [50.0] * len(topology.links)
    assert topology.facts["link_gbps"].source == "a data sheet"


def test_any_wiring(tmp_path: Path) -> None:
    wires = [[0, 1, 100, 1], [1, 2, 100, 1], [2, 0, 50, 1]]
    topology = load(written(tmp_path, fabric="links", dims=[3], links=wires, link_counting="per_direction"))
    assert topology.neighbours(0) == [1, 2]
    assert topology.egress_gbps.tolist() == [150.0, 200.0, 150.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": None}, "dims: missing"),
        ({"link_gbps": None}, "link_gbps: missing"),
        ({"link_gbps": -3}, r"link_gbps=-3\.0: must not be negative"),
        ({"link_gbps": 0}, "links.gbps=0: must be more than 0"),
        ({"link_gbps": "fast"}, "link_gbps='fast': expected a list or number"),
        ({"link_gbps": [1, 2, 3]}, "expected 2 values, one a dimension"),
        ({"link_us": -1}, "link_us=-1.0: must not be negative"),
        ({"dims": [2, 2.5]}, r"dims\[1\]=2.5: expected a whole number"),
        ({"dims": [0, 3]}, "every dimension must be 1 or more"),
        ({"lnc": 3}, "lnc=3"),
        ({"colour": "red"}, "colour: no such field"),
        ({"fabric": "star"}, "fabric='star': expected torus, switch, links or none"),
        ({"hbm_gib": True}, "hbm_gib=True: expected a number"),
        ({"hbm_gbps": 0}, "hbm_gbps=0.0: must be more than 0"),
        ({"link_counting": "both"}, "link_counting='both'"),
        ({"nodes": 4}, "nodes=4 does not divide"),
        ({"link_us": {"value": 1, "mark": "guessed"}}, "link_us.mark='guessed'"),
        ({"fabric": "links", "dims": [3], "links": [[0, 1, 100, 1]]}, "chip 2 cannot be reached"),
        ({"fabric": "links", "dims": [2], "links": [[0, 7, 100, 1]]}, "links.src=7: no such chip"),
        ({"fabric": "links", "dims": [2], "links": [[0, 1]]}, "expected"),
        (
            {"fabric": "switch", "levels": [{"chips": 4, "gbps": 1, "us": 1}]},
            "levels.chips=4 does not divide",
        ),
        ({"fabric": "switch", "levels": [{"chips": 6, "us": 1}]}, "gbps: missing"),
    ],
)
def test_files_that_make_no_sense(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        load(written(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_not_json_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{\n"dims": [2,\n')
    with pytest.raises(TopologyError, match=r"broken.json:3: not JSON"):
        load(str(path))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nope", "no such preset or file"),
        ("torus:", "expected a shape"),
        ("torus:4xx4", "expected a shape"),
        ("torus:0x4", "no such torus"),
        ("ring:2x2", "no such ring"),
        ("trn2.48xlarge*0", "'0' is no number of nodes"),
        ("trn2.48xlarge*x", "'x' is no number of nodes"),
        ("inf2.48xlarge*2", "has no EFA"),
    ],
)
def test_specs_that_make_no_sense(spec: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        load(spec)
