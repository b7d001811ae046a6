import warnings

import pytest
import torch
import torch.distributed as dist
from neuron_dist.topology import load

from neuron_dist.group_lint import FabricError, FabricWarning, check_group, working_group
from tests.harness import run

TRN2 = "trn2.48xlarge"
FAR_APART = [0, 32]  # chips 0 and 8 are two hops apart


def test_names_the_rule_the_runtime_and_a_group_that_works():
    with pytest.warns(FabricWarning) as caught:
        check_group(load(TRN2), FAR_APART, rank=0, env={})
    text = str(caught[0].message)
    assert "refuses the group of ranks [0, 32]" in text
    assert "routable-rectangle" in text
    assert "no_hier no_mesh replica-group: [0, 32]" in text
    assert "A group that works: ranks 0 to 1." in text


def test_error_level_raises_on_every_rank():
    for rank in (0, 1):
        with pytest.raises(FabricError, match="routable-rectangle"):
            check_group(load(TRN2), FAR_APART, rank, env={"NEURON_SIM_LINT": "error"})


def test_silent_where_it_should_be():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_group(load(TRN2), FAR_APART, rank=1, env={})
        check_group(load(TRN2), FAR_APART, rank=0, env={"NEURON_SIM_LINT": "off"})
        check_group(load(TRN2), [0, 1, 2, 3], rank=0, env={})
        check_group(load(TRN2), [5], rank=0, env={})
    with pytest.raises(ValueError, match="NEURON_SIM_LINT='loud'"):
        check_group(load(TRN2), FAR_APART, rank=0, env={"NEURON_SIM_LINT": "loud"})


def test_working_group_keeps_the_size_where_it_can():
    assert working_group(load("trn1.32xlarge"), [0, 1, 2]) == "ranks 0 to 7"


def refused_by_trn1(rank, world_size):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        group = dist.new_group([0, 1, 2])
    messages = [str(each.message) for each in caught if issubclass(each.category, FabricWarning)]
    assert len(messages) == (1 if rank == 0 else 0)
    tensor = torch.ones(2, device="neuron")
    if rank < 3:
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [3.0, 3.0], "it still runs"


def test_new_group_warns_once():
    run(4, refused_by_trn1, env={"NEURON_SIM_TOPOLOGY": "trn1.32xlarge", "NEURON_SIM_LINT": "warn"})


def refused_as_error(rank, world_size):
    if rank < 3:
        with pytest.raises(FabricError, match="group-size"):
            dist.new_group([0, 1, 2])
    else:
        dist.new_group([0, 1, 2])


def refuse_under_error(rank, world_size):
    import os

    dist.init_process_group("neuron")
    os.environ["NEURON_SIM_LINT"] = "error"
    refused_as_error(rank, world_size)


def test_new_group_raises_under_error():
    run(
        4,
        refuse_under_error,
        backend=None,
        env={"NEURON_SIM_TOPOLOGY": "trn1.32xlarge", "NEURON_SIM_LINT": "off"},
    )
