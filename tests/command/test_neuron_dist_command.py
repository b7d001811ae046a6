"""The neuron-dist command: what it prints, its JSON, and one line for every error."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from neuron_dist.launcher.cli import main

EXAMPLE = str(Path(__file__).parents[2] / "examples/custom_algorithm/two_rings.py")


class Command:
    """Runs the command and keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]):
        self.capsys = capsys

    def text(self, *args: str, status: int = 0) -> str:
        assert main(args) == status
        return self.capsys.readouterr().out

    def json(self, *args: str, status: int = 0) -> Any:
        return json.loads(self.text(*args, "--json", status=status))

    def error(self, *args: str) -> str:
        """The one line an error is told in."""
        try:
            status = main(args)
        except SystemExit as exit:
            status = exit.code  # type: ignore[assignment]
        captured = self.capsys.readouterr()
        assert status == 2
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        return captured.err


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


FIELDS = {
    "op",
    "algorithm",
    "topology",
    "ranks",
    "size",
    "steps",
    "time_us",
    "alpha_us",
    "beta_us",
    "hbm_us",
    "bound_us",
    "bound_ratio",
    "algbw",
    "busbw",
    "busiest_link",
    "chosen",
}


def predict(command: Command, *args: str) -> list[dict[str, Any]]:
    return command.json("predict", "all_reduce", "--topology", "trn2.48xlarge", *args)


def test_predict_rows(command: Command) -> None:
    rows = predict(command, "--ranks", "64", "--size", "1K:1G:1024", "--algorithm", "all")
    assert all(row.keys() >= FIELDS for row in rows)
    assert {row["size"] for row in rows} == {1 << 10, 1 << 20, 1 << 30}
    assert {
        "ring",
        "bucket",
        "rdh",
        "mesh",
        "mesh1",
        "kangaring",
        "swing",
        "rd",
        "tree",
        "direct",
        "hierarchical",
    } <= {row["algorithm"] for row in rows}
    for size in (1 << 10, 1 << 20, 1 << 30):
        of_size = [row for row in rows if row["size"] == size]
        (chosen,) = [row for row in of_size if row["chosen"]]
        assert chosen["time_us"] == min(row["time_us"] for row in of_size)
    for row in rows:
        assert row["time_us"] == pytest.approx(row["alpha_us"] + row["beta_us"] + row["hbm_us"])
        assert row["bound_ratio"] == pytest.approx(row["time_us"] / row["bound_us"])
        assert row["algbw"] == pytest.approx(row["size"] / row["time_us"] / 1e3)
        assert row["busbw"] == pytest.approx(row["algbw"] * 2 * 63 / 64)


def test_predict_by_neurons_limits(command: Command) -> None:
    rows = predict(command, "--size", "512K,8M,64M", "--selection", "neuron")
    assert [row["algorithm"] for row in rows if row["chosen"]] == ["mesh", "rdh", "kangaring"]


def test_predict_table(command: Command) -> None:
    text = command.text(
        "predict", "all_reduce", "-t", "trn2.48xlarge", "-s", "1M", "-a", "mesh,rdh,kangaring"
    )
    lines = text.splitlines()
    assert lines[0] == "all_reduce, 64 ranks of trn2.48xlarge: predicted, not measured"
    assert lines[1].split()[:4] == ["size", "algorithm", "steps", "us"]
    assert lines[2].split()[:4] == ["1M", "mesh", "*", "4"]
    assert [line.split()[0] for line in lines[3:5]] == ["rdh", "kangaring"]
    assert max(len(line) for line in lines) <= 130


def test_predict_takes_a_file(command: Command) -> None:
    name = f"{EXAMPLE}:two_rings"
    rows = command.json("predict", "all_gather", "-t", "ring:8", "-s", "1M", "-a", f"ring,{name}")
    assert {row["algorithm"] for row in rows} == {"ring", name}
    assert rows[0]["time_us"] == pytest.approx(rows[1]["time_us"])


def test_predict_a_group_with_a_fault(command: Command) -> None:
    args = ("predict", "all_reduce", "-t", "torus:4x4", "--group", "0-3", "-s", "1M", "-a", "ring")
    (whole,) = command.json(*args)
    (slow,) = command.json(*args, "--fault", "link:0-1:slow=0.5")
    assert whole["ranks"] == 4
    assert slow["beta_us"] == pytest.approx(2 * whole["beta_us"])


def test_predict_point_to_point(command: Command) -> None:
    (row,) = command.json("predict", "send_recv", "-t", "torus:4x4", "-s", "1M", "--pairs", "0-5")
    assert row["alpha_us"] == 2.0


def test_predict_leaves_out_what_cannot_serve(command: Command) -> None:
    assert (
        main(["predict", "all_reduce", "-t", "torus:4x4", "-s", "1M", "-a", "kangaring,ring", "--json"]) == 0
    )
    captured = command.capsys.readouterr()
    assert [row["algorithm"] for row in json.loads(captured.out)] == ["ring"]
    assert captured.err == "neuron-dist: kangaring does not serve all_reduce on this group: left out\n"


def test_inline_shapes_are_links_alone(command: Command) -> None:
    (row,) = command.json("predict", "reduce_scatter", "-t", "torus:4x8", "-s", "1T", "-a", "bucket")
    assert row["hbm_us"] == 0
    assert row["bound_ratio"] == pytest.approx(1.52, abs=0.005)
    assert command.json("topo", "torus:4x8")["hbm_gbps_per_core"] is None


def test_plot(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    command.text("predict", "all_reduce", "-t", "torus:4x4", "--plot", str(path))
    drawing = ElementTree.parse(path).getroot()
    assert len([e for e in drawing.iter() if e.tag.endswith("polyline")]) > 10


def test_topo(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "topo.svg"
    text = command.text("topo", "trn2.48xlarge", "--svg", str(path))
    assert "torus 4x4; 16 chips, 64 logical cores" in text
    assert (
        "  *\u2013\u2013►[ 0 ]◄\u2013\u2013►[ 1 ]◄\u2013\u2013►[ 2 ]◄\u2013\u2013►[ 3 ]◄\u2013\u2013*" in text
    )
    assert "64 directed NeuronLink links of 128 GB/s one way" in text
    assert "documented" in text
    ElementTree.parse(path)
    facts = command.json("topo", "trn2.48xlarge")
    assert facts["connected_to"]["5"] == [1, 4, 9, 6]
    assert facts["hbm_gib_per_core"] == 24
    assert facts["facts"]["link_counting"]["mark"] == "inferred"


@pytest.mark.parametrize(
    "name", ["trn3-gen1-ultraserver", "inf2.24xlarge", "trn1.2xlarge", "torus:4x4x4", "torus:2x2"]
)
def test_topo_of_every_kind(command: Command, name: str, tmp_path: Path) -> None:
    assert command.text("topo", name, "--svg", str(tmp_path / "x.svg")).startswith(name)
    ElementTree.parse(tmp_path / "x.svg")


def test_topo_lists_presets(command: Command) -> None:
    assert "trn2-ultraserver" in command.text("topo")
    assert len(command.json("topo")) == 13


def test_explain(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "steps.svg"
    text = command.text("explain", "all_reduce", "-t", "torus:4x4", "-a", "rdh", "--svg", str(path))
    assert text.count("\nstep ") == 8
    assert "rank 1 -> rank 0: adds chunks 0 to 7 (channel 0)" in text
    assert "chunk 0 is summed (((0 + 1) + (2 + 3))" in text
    pictures = [e for e in ElementTree.parse(path).getroot() if e.tag.endswith("svg")]
    assert len(pictures) == 8
    told = command.json("explain", "all_reduce", "-t", "torus:4x4", "-a", "rdh", "-s", "1M")
    assert len(told["steps"]) == 8
    assert len(told["transfers"]) == 8 * 64
    assert sum(step["beta_us"] for step in told["steps"]) == pytest.approx(told["price"]["beta_us"])


def test_explain_lights_the_links_that_work(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "steps.svg"
    command.text("explain", "broadcast", "-t", "ring:4", "-a", "tree", "--svg", str(path))
    first, second = (e for e in ElementTree.parse(path).getroot() if e.tag.endswith("svg"))
    lit = [sum(e.get("marker-end") is not None for e in picture.iter()) for picture in (first, second)]
    assert lit == [4, 2]  # 0 to 2 both ways round; then 0 to 1 and 2 to 3


def test_explain_chooses(command: Command) -> None:
    assert "pipelined: in" in command.text(
        "explain", "all_reduce", "-t", "trn2.48xlarge", "-s", "64M", "--show", "0"
    )


def test_verify(command: Command) -> None:
    text = command.text("verify", f"{EXAMPLE}:two_rings", "--topology", "ring:8")
    assert "two_rings on 8 ranks of ring:8: correct" in text
    found = command.json("verify", "swing", "--op", "all_reduce")["correct"]
    assert found == [{"op": "all_reduce", "steps": 8, "transfers": 992, "chunks": 64, "sum_depth": 4}]


def test_verify_says_what_is_wrong(command: Command) -> None:
    line = command.error("verify", f"{EXAMPLE}:impatient", "--topology", "ring:8", "--op", "all_gather")
    assert "step 0, copy 0 -> 1 of chunk 14: rank 0 has nothing of chunk 14 yet" in line


def test_lint(command: Command) -> None:
    text = command.text("lint", "-t", "trn2.48xlarge", "-g", "0-31;32-63")
    assert text.splitlines()[-1] == "ok by the rules of neuron 2.32"
    text = command.text("lint", "-t", "trn2.48xlarge", "-g", "0,32", status=1)
    assert "the runtime says: ENC:enc_init_comm failed (2)" in text
    found = command.json("lint", "-t", "trn1.32xlarge", "-g", "0-23", status=1)
    assert found["worst"] == "reject"
    assert found["findings"][0]["rule"] == "group-size"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the following arguments are required"),
        (["fly"], "invalid choice: 'fly'"),
        (["predict", "all_sum", "-t", "ring:8"], "invalid choice: 'all_sum'"),
        (["predict", "all_reduce"], "required: --topology"),
        (["predict", "all_reduce", "-t", "nope"], "topology 'nope': no such preset or file"),
        (["predict", "all_reduce", "-t", "ring:8", "-r", "9"], "--ranks 9: ring:8 has 1 to 8"),
        (["predict", "all_reduce", "-t", "ring:8", "-r", "0"], "--ranks 0"),
        (["predict", "all_reduce", "-t", "ring:8", "-g", "0,0"], "core 0 is listed 2 times"),
        (["predict", "all_reduce", "-t", "ring:8", "-g", "0-9"], "core 8 does not exist"),
        (["predict", "all_reduce", "-t", "ring:8", "-s", "1Z"], "size '1Z'"),
        (
            ["predict", "all_reduce", "-t", "ring:8", "-a", "kangaring"],
            "kangaring: needs all ranks of each chip",
        ),
        (["predict", "all_reduce", "-t", "ring:8", "-a", "quick"], "algorithm 'quick'"),
        (["predict", "all_reduce", "-t", "ring:8", "--selection", "x"], "selection 'x'"),
        (["predict", "all_reduce", "-t", "ring:8", "--fault", "x"], "fault 'x'"),
        (["predict", "broadcast", "-t", "ring:8", "--root", "8"], "root=8 is not a rank"),
        (["predict", "permute", "-t", "ring:8"], "no (src, dst) pairs"),
        (["predict", "permute", "-t", "ring:8", "--pairs", "0+1"], "'0+1' is no pair of ranks"),
        (["explain", "all_reduce", "-t", "ring:8", "-a", "nowhere.py:f"], "nowhere.py:f: no such file"),
        (["verify", "tree", "--op", "all_to_all"], "tree serves broadcast"),
        (["lint", "-t", "ring:8", "-g", "0;;"], "group ''"),
        (["topo", "torus:4xx"], "expected a shape"),
        (["topo", "ring:4", "--svg", "/nowhere/x.svg"], "No such file or directory"),
    ],
)
def test_errors_are_one_line(command: Command, args: Sequence[str], message: str) -> None:
    assert message in command.error(*args)
