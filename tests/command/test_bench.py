"""The bench command: real results on real processes, beside the algorithm that the selection names."""

import json

import pytest
from neuron_dist.launcher.cli import main


def test_measures_checks_and_follows_the_selection(capsys):
    selection = "all_reduce=mesh:0-64K;ring:64K-"
    argv = [
        "bench",
        "allr",
        "-r",
        "2",
        "-b",
        "1K",
        "-e",
        "128K",
        "-f",
        "128",
        "-n",
        "3",
        "-t",
        "trn2.48xlarge",
    ]
    assert main([*argv, "--algorithm", selection, "--vs", "gloo", "--json"]) == 0
    small, large = json.loads(capsys.readouterr().out)
    assert (small["algorithm"], large["algorithm"]) == ("mesh", "ring")
    assert small["#wrong"] == large["#wrong"] == 0
    assert small["time(us)"] > 0
    assert small["gloo(us)"] > 0
    assert small["gloo/neuron"] == pytest.approx(small["gloo(us)"] / small["time(us)"])


def test_prices_what_the_host_cannot_run(capsys):
    assert main(["bench", "allr", "-r", "64", "-b", "1M", "-e", "1M", "--algorithm", "ring"]) == 0
    out = capsys.readouterr().out
    assert "priced only: 64 ranks" in out
    assert "ring" in out
    assert "time(us)" not in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-r", "1"], "at least 2 ranks"),
        (["-r", "2", "-d", "fp99"], "-d fp99: no such dtype"),
        (["-r", "2", "-b", "2M", "-e", "1M"], "no step leads"),
        (["-r", "2", "--vs", "nccl"], "--vs nccl: no peer 'nccl'; expected gloo or mpich"),
    ],
)
def test_wrong_arguments_are_one_line(argv, message, capsys):
    assert main(["bench", "allr", *argv]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
