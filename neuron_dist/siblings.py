"""Which groups of a job do the same at the same time: the other tensor-parallel or data-parallel groups of a mesh."""

from collections.abc import Sequence


def siblings(ranks: Sequence[int], world_size: int) -> list[tuple[int, ...]]:
    """The groups that run side by side with the group of global ``ranks``, itself included, by lowest rank.

    Inferred, as no call says so: if copies of the group, shifted, make up the whole job, a program that is the same on
    every rank runs them all at once. They are laid from the lowest rank that none holds yet. A group whose copies do
    not fit, or lie elsewhere than it does, is alone. Rank i of each is the first's, shifted.
    """
    own = tuple(ranks)
    first = min(own)
    tiles: list[tuple[int, ...]] = []
    free = set(range(world_size))
    for rank in range(world_size):
        if rank not in free:
            continue
        tile = tuple(other - first + rank for other in own)
        if not free.issuperset(tile):
            return [own]
        free.difference_update(tile)
        tiles.append(tile)
    return tiles if own in tiles else [own]
