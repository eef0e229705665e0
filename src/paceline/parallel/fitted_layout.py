"""Which part of the workers can train when some are lost, and how the model then stands on them."""

from paceline.specs import Layout, SyncSettings


def fitted(layout: Layout, members: int) -> Layout | None:
    """The layout for so many members, of whom some may stay idle; None where they are too few.

    Slices and stages stay as they are, as long as it is possible shards do, and copies become
    fewer: with what is left of a copy nothing can be trained.
    """
    together = layout.tensor * layout.pipeline
    copies = members // (together * layout.shards)
    if copies:
        return layout.model_copy(update={"replicas": min(copies, layout.replicas)})
    shards = members // together
    return layout.model_copy(update={"replicas": 1, "shards": shards}) if shards else None


def fitting(layout: Layout, members: int) -> int:
    """Of so many members, how many can train."""
    found = fitted(layout, members)
    return found.workers if found else 0


def everybody_has_all(layout: Layout, sync: SyncSettings) -> bool:
    """Whether each worker holds all of a training's state, the same as the others."""
    return sync.replicas_suffice and layout.replicas == layout.workers
