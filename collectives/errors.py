"""What can be wrong with a collective."""


class CollectiveError(ValueError):
    """Base of the errors below. One line: what, where (rank, step, chunk), what to do."""


class Unsupported(CollectiveError):
    """An algorithm that cannot serve this op or this group; another one can."""


class VerificationError(CollectiveError):
    """A schedule that does not do what its op promises, or races, or uses links that are not there."""
