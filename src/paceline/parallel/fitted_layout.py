"""The layout for the survivors of a failure, and how many of them can train."""

from paceline.specs import Layout, SyncSettings


def fitted(layout: Layout, members: int) -> Layout | None:
    """Return the layout for this many members, some possibly idle; None if there are too few.

    Tensor-parallel slices and pipeline stages stay, and shards stay if possible. The number of
    replicas drops, because a partial replica cannot train.
    """
    together = layout.tensor * layout.pipeline
    copies = members // (together * layout.shards)
    if copies:
        return layout.model_copy(update={"replicas": min(copies, layout.replicas)})
    shards = members // together
    return layout.model_copy(update={"replicas": 1, "shards": shards}) if shards else None


def fitting(layout: Layout, members: int) -> int:
    """Return how many of this many members can train."""
    found = fitted(layout, members)
    return found.workers if found else 0


def everybody_has_all(layout: Layout, sync: SyncSettings) -> bool:
    """Whether each worker holds the full training state, equal to the others'."""
    return sync.replicas_suffice and layout.replicas == layout.workers
