"""The division of a training's batches among the workers of a generation."""

from paceline.data.batches import Batches
from paceline.parallel.data_speeds import speeds_of_data_workers
from paceline.specs import Layout, Placement, SyncSettings
from paceline.user.training import Training


def divided_batches(
    training: Training,
    layout: Layout,
    placement: Placement,
    sync: SyncSettings,
    *,
    first_step: int,
) -> Batches:
    """Return one worker's local batches of the steps from `first_step` on."""
    return Batches(
        order=training.sample_order(),
        batch=training.batch,
        steps=training.total_steps,
        workers=layout.data_workers,
        rank=layout.data_rank(placement.rank),
        speeds=speeds_of_data_workers(placement, layout),
        seed=training.seed,
        first_step=first_step,
        parts=sync.batch_parts,
    )
