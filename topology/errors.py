"""The error for everything wrong with a description of hardware or with a group of its cores."""


class TopologyError(ValueError):
    """A topology, placement, group or fault that makes no sense, told in one line: where, and what to do."""
