"""The command line of `neuronrun`: torchrun's, and flags for the simulated fabric."""

from argparse import ArgumentParser
from typing import Any

from torch.distributed import run as torchrun

# Flags of our own and the variables that workers read; a flag wins over the environment.
FABRIC_FLAGS = {
    "--topology": (
        "NEURON_SIM_TOPOLOGY",
        "instance type, file or inline spec, such as trn2.48xlarge or torus:4x4",
    ),
    "--algorithm": (
        "NEURON_SIM_ALGORITHM",
        "algorithm, file.py:function, or selection string by op and size",
    ),
    "--reduction": (
        "NEURON_SIM_REDUCTION",
        "schedule (round at each hop, as the wire) or exact (round once)",
    ),
    "--faults": ("NEURON_SIM_FAULTS", "what goes wrong in the fabric, and when"),
    "--lint": ("NEURON_SIM_LINT", "warn, error or off for groups that the fabric would refuse"),
    "--report": ("NEURON_SIM_REPORT", "folder for what the ranks leave to `neuron-dist report`"),
    "--trace": ("NEURON_SIM_TRACE", "folder for a timeline of the job, merged over its ranks"),
}
_OWN = {*FABRIC_FLAGS, "--dry-run"}


class Parser(ArgumentParser):
    """Takes an abbreviation as torchrun does where it has a flag of that beginning, else as one of ours."""

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        found = super()._get_option_tuples(option_string)
        torchs = [match for match in found if _OWN.isdisjoint(match[0].option_strings)]
        return torchs or found


def get_args_parser() -> ArgumentParser:
    """Torchrun's parser under our name: every torchrun command line parses to the same values.

    Flags of our own are added here, as options: the script and its arguments stay the last positionals.
    """
    parser = Parser(
        prog="neuronrun",
        description="Start a distributed job on the simulated neuron devices. Takes what torchrun takes.",
        parents=[torchrun.get_args_parser()],
        add_help=False,
    )
    fabric = parser.add_argument_group("the simulated fabric")
    for flag, (variable, text) in FABRIC_FLAGS.items():
        fabric.add_argument(flag, default=None, help=f"{text} (sets {variable})")
    fabric.add_argument(
        "--dry-run",
        action="store_true",
        help="say what would be started, and what the fabric thinks of the usual groups, and start nothing",
    )
    return parser
