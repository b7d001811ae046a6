"""Flags: torchrun's abbreviations, counts of workers, cores that fit, and --dry-run."""

import os

import pytest
from neuron_dist.launcher import job
from neuron_dist.launcher.flags import get_args_parser
from torch.distributed import run as torchrun


def abbreviations() -> list[tuple[str, str]]:
    """Every beginning of a torchrun flag that torchrun takes, and the flag."""
    parser = torchrun.get_args_parser()
    flags = [flag for flag in parser._option_string_actions if flag.startswith("--") and flag != "--help"]
    return [
        (flag[:length], flag)
        for flag in flags
        for length in range(3, len(flag) + 1)
        if len(parser._get_option_tuples(flag[:length])) == 1
    ]


def test_every_abbreviation_that_torchrun_takes_means_the_same():
    found = abbreviations()
    assert ("--red", "--redirects") in found
    ours, theirs = get_args_parser(), torchrun.get_args_parser()
    for short, flag in found:
        action = theirs._option_string_actions[flag]
        value = [] if action.nargs == 0 else [(action.choices or ["3"])[0]]
        expected = vars(theirs.parse_args([short, *value, "train.py"]))
        assert expected.items() <= vars(ours.parse_args([short, *value, "train.py"])).items(), short


def test_our_flags_may_be_shortened_where_torchrun_has_none():
    args = get_args_parser().parse_args(["--topo", "ring:4", "--alg", "ring", "--dry", "train.py"])
    assert (args.topology, args.algorithm, args.dry_run) == ("ring:4", "ring", True)


@pytest.mark.parametrize(
    ("line", "env", "count"),
    [
        ("--nproc-per-node neuron", {}, "64"),
        ("--nproc-per-node neuron", {"NEURON_RT_VISIBLE_CORES": "0-2,7"}, "4"),
        ("--nproc-per-node auto", {"NEURON_RT_NUM_CORES": "8"}, "8"),
        ("--nproc-per-node auto --topology trn1.32xlarge", {}, "32"),
        ("--nproc-per-node cpu", {}, str(len(os.sched_getaffinity(0)))),
        ("--nproc-per-node 3", {}, "3"),
    ],
)
def test_workers_can_be_counted_by_cores(line, env, count, settled):
    assert settled(line, **env).nproc_per_node == count


@pytest.mark.parametrize(
    ("line", "env", "message"),
    [
        (
            "--nproc-per-node 4",
            {"NEURON_RT_VISIBLE_CORES": "0-2"},
            "VISIBLE_CORES=0-2: 3 cores, too few for 4 ranks",
        ),
        ("--nproc-per-node 4", {"NEURON_RT_NUM_CORES": "2"}, "NUM_CORES=2: 2 cores, too few for 4 ranks"),
        ("", {"NEURON_RT_VISIBLE_CORES": "3-1"}, "is no core id or range"),
        ("", {"NEURON_RT_VISIBLE_CORES": "1,1"}, "listed twice"),
        ("", {"NEURON_LOGICAL_NC_CONFIG": "3"}, "NEURON_LOGICAL_NC_CONFIG=3: expected 1 or 2"),
        ("-r 16", {}, "--redirects '16': expected"),
        ("-t 0:7", {}, "--tee '0:7': expected"),
        ("--nnodes 1:2", {}, "a range needs --rdzv-backend c10d"),
        ("--local-ranks-filter x", {}, "--local-ranks-filter x: expected local ranks such as 0,1"),
        ("--local-ranks-filter 4", {}, "--local-ranks-filter 4: this node's local ranks are 0 to 0"),
        ("-r 3:1", {}, "--redirects 3:1: this node's local ranks are 0 to 0"),
        ("--faults rank:1:kill", {}, "fault 'rank:1:kill': the job has ranks 0 to 0"),
        ("--topology torus:2x2 --faults link:0-3:down", {}, "no link between chips 0 and 3"),
    ],
)
def test_what_does_not_fit_is_named(line, env, message, settled):
    with pytest.raises(ValueError, match=message):
        settled(line, **env)


def test_the_environment_names_the_machines_logical_cores(settled):
    settled("--topology trn1.32xlarge")
    assert os.environ["NEURON_LOGICAL_NC_CONFIG"] == "1"
    settled("--topology trn2.48xlarge", NEURON_LOGICAL_NC_CONFIG="1")
    assert os.environ["NEURON_LOGICAL_NC_CONFIG"] == "1"  # as given


def test_flags_for_the_fabric_reach_the_workers(settled):
    settled("--topology torus:2x2 --faults link:0-1:down --reduction exact --lint off --algorithm ring")
    assert os.environ["NEURON_SIM_FAULTS"] == "link:0-1:down"
    assert os.environ["NEURON_SIM_REDUCTION"] == "exact"
    assert os.environ["NEURON_SIM_LINT"] == "off"
    assert os.environ["NEURON_SIM_ALGORITHM"] == "ring"


def test_dry_run_says_what_would_start(tmp_path, capsys, environment):
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('started')")
    line = "--dry-run --topology trn2.48xlarge*2 --nproc-per-node 12 --nnodes 2 --master-addr host"
    assert job.run([*line.split(), str(script), "--lr", "0.1"]) == 0
    out = capsys.readouterr().out
    assert f"{script} --lr 0.1" in out
    assert "ranks        24: 12 on each of 2 nodes" in out
    assert "rendezvous   static, host:29500, node 0" in out
    assert "32 chips, 128 cores of 24 GiB, 2 instances" in out
    assert "NEURON_SIM_TOPOLOGY=trn2.48xlarge*2" in out
    assert "reject all 24 ranks (data parallel): " in out
    assert "ok     6 groups of 4 neighbours (tensor parallel within one chip)" in out
