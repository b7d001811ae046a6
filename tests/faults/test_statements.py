"""Faults as text: what is taken, what is refused and how, and what the seed decides."""

import pytest
from neuron_dist.topology import load

from neuron_dist.faults import FaultError, parse

TRN2 = load("trn2.48xlarge")


def events(text, world_size=64):
    return [
        (event.kind, event.where, event.how, event.point, event.at) for event in parse(text, TRN2, world_size)
    ]


def test_events_and_when():
    assert events("link:0-1:down@call=3; chip:2:down@time=0.5; rank:1:kill@inside=4") == [
        ("link", "0-1", "down", "call", 3),
        ("chip", "2", "down", "time", 0.5),
        ("rank", "1", "kill", "inside", 4),
    ]
    assert events("rank:0:delay=0.5") == [("rank", "0", "delay=0.5", "call", 1)]
    assert events("") == []


def test_file_with_comments(tmp_path):
    file = tmp_path / "faults"
    file.write_text("# a bad day\nlink:0-1:slow=0.5@call=2  # half\n\nseed=3\nrank:5:stop\n")
    assert [event[:3] for event in events(str(file))] == [("link", "0-1", "slow=0.5"), ("rank", "5", "stop")]


def test_chance_is_the_seeds():
    text = "link:any:down@call=1-100; rank:any:corrupt@call=1-100; chip:any:down@call=1-100"
    first = parse(f"{text}; seed=1", TRN2, 64)
    assert first == parse(f"{text}; seed=1", TRN2, 64)
    seeds = {
        tuple((event.where, event.at) for event in parse(f"{text}; seed={n}", TRN2, 64)) for n in range(10)
    }
    assert len(seeds) == 10
    assert all(1 <= event.at <= 100 for event in first)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("link:0-1", "expected link:A-B:down"),
        ("link:0-9:down", "there is no link between chips 0 and 9"),
        ("link:0-1:slow=2", "the factor must be above 0 and at most 1"),
        ("link:0-1:slow=x", "expected link:A-B:down"),
        ("link:0-1:down@inside=3", "a link changes between collectives"),
        ("chip:99:down", "no such chip"),
        ("rank:64:kill", "the job has ranks 0 to 63"),
        ("rank:1:explode", "delay=S, stop, kill or corrupt"),
        ("rank:1:kill=3", "delay=S, stop, kill or corrupt"),
        ("rank:1:delay=-1", "expected seconds"),
        ("rank:1:delay", "delay=S, stop, kill or corrupt"),
        ("rank:1:corrupt@inside=2", "corrupt takes @call=N or @time=S"),
        ("rank:1:kill@call=0", "from 1, or a range"),
        ("rank:1:kill@call=9-3", "from 1, or a range"),
        ("rank:1:kill@time=soon", "expected simulated seconds"),
        ("rank:1:kill@never=1", "expected link:A-B:down"),
        ("seed=x", "expected one seed"),
        ("seed=1; seed=2", "expected one seed"),
        ("; ".join(["link:0-1:late=1"] * 65), "more than 64"),
    ],
)
def test_nonsense_is_refused_in_one_line(text, said):
    with pytest.raises(FaultError, match=said) as error:
        parse(text, TRN2, 64)
    assert "\n" not in str(error.value)
