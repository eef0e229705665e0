"""One worker's part of the sample ledger, from generation to generation."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from paceline.checkpoints.ledger import Ledger
from paceline.data.batches import Batches
from paceline.data.loader import Batch
from paceline.remote.places import publish_file
from paceline.specs import Layout, Placement, Run
from paceline.train.elastic.snapshot import counted_by
from paceline.train.stepper import Stepper
from paceline.user.training import Training


class SampleRecord:
    """Records the samples of this worker, if it is the one of its local batch that does."""

    def __init__(self, run: Run, training: Training) -> None:
        self._run, self._training = run, training
        self._ledger: Ledger | None = None
        self._drawn: tuple[int, Layout, Batches] | None = None
        """Generation, layout and batches that the open ledger is about."""
        self._safe_step = self._synced_step = 0
        """The last steps of which all workers', and this worker's, samples are surely kept."""

    def begin(self, stepper: Stepper, placement: Placement, lost: Iterable[int]) -> None:
        """Begin a generation; `lost`: ranks of the previous one that are not in it."""
        self.close()
        first = stepper.batches.first_step
        batches = self._with_before(stepper.batches)
        if placement.rank == 0 and self._run.url is not None:
            self._derive(lost, until=first)
        self._ledger = self._drawn = None
        self._safe_step = self._synced_step = first
        position = stepper.layout.position(placement.rank)
        if position.stage == position.slice == 0:
            self._drawn = (placement.generation, stepper.layout, stepper.batches)
            self._ledger = self._opened(placement.generation, batches)
            self._enter(self._ledger, batches, until=first)

    def entering(self, stepper: Stepper, step: int, batch: Batch) -> None:
        """Record a step's samples, before any weight can depend on them."""
        if self._ledger is not None:
            epoch = stepper.batches.epoch(step - 1)
            made = batch.samples if self._training.data is None else 0
            self._ledger.entering(step, epoch, batch.ids, made)

    def sync(self, step: int) -> None:
        """Flush the samples up to a step, before a checkpoint commits them."""
        if self._ledger is not None:
            self._ledger.sync()
            # All workers come here, and the checkpoint before this one is complete.
            self._safe_step, self._synced_step = self._synced_step, step

    def close(self) -> None:
        """End the file."""
        if self._ledger is not None:
            self._ledger.close()

    def _opened(self, generation: int, batches: Batches, *, derived: bool = False) -> Ledger:
        return Ledger(
            self._run.ledger,
            generation=generation,
            part=batches.rank,
            parts=batches.workers,
            resumed=batches.first_step,
            samples=0 if self._training.data is None else batches.order.samples,
            by=counted_by(self._training),
            derived=derived,
            publish=partial(publish_file, self._run),
        )

    def _derive(self, lost: Iterable[int], *, until: int) -> None:
        """Write the samples of lost workers' last steps, which were on their nodes' disks only.

        The order of the data gives them, as it gave them to these workers.
        """
        if self._drawn is None:
            return
        generation, layout, batches = self._drawn
        for part in sorted({layout.data_rank(rank) for rank in lost} - {batches.rank}):
            theirs = replace(batches, rank=part)
            ledger = self._opened(generation, theirs, derived=True)
            self._enter(ledger, replace(theirs, first_step=self._safe_step), until=until)
            ledger.close()

    def _with_before(self, batches: Batches) -> Batches:
        """Return batches from the begin of the epoch in which the run continues another one.

        The other run's ledger has these samples; the order of the data gives them here."""
        first = self._run.job.starts_from
        if first is None or batches.first_step != first.step:
            return batches
        stages = batches.stages
        begin = stages.position(first.step) - batches.begin(first.step)
        return replace(batches, first_step=stages.step_from(begin))

    def _enter(self, ledger: Ledger, batches: Batches, *, until: int) -> None:
        """Record the samples of steps by the order of the data."""
        for step in range(batches.first_step, until):
            count = batches.counts(step).samples
            made = count if self._training.data is None else 0
            ids = () if made else tuple(batches.indices(step)[:count])
            ledger.entering(step + 1, batches.epoch(step), ids, made)
