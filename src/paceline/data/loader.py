"""From a dataset to batches on the device: PyTorch's DataLoader, in Paceline's sample order."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from paceline.data.batches import Batches
from paceline.data.collation.form import BatchForm, to_device
from paceline.data.collation.nested import map_tensors
from paceline.data.prefetch import ReadAhead
from paceline.data.randomness import Seeded, draws_numbers
from paceline.specs.even_division import slice_of


@dataclass(frozen=True)
class Batch:
    """One worker's local batch, on its device."""

    inputs: Any
    target: Any
    samples: int
    """Samples of this local batch that count."""
    global_samples: int
    ids: tuple[int, ...] = ()
    """Indices of these samples in the dataset; empty for a micro-batch."""
    padding: int = 0
    """Rows after the samples that do not count."""
    collated: Any = field(default=None, repr=False)
    """The batch that inputs and target were split from."""
    form: BatchForm = field(default=BatchForm(), repr=False)
    place: dict[str, Any] | None = field(default=None, repr=False)
    """The place in the stream after this batch; None if the data is not a stream."""
    fingerprint: int | None = field(default=None, repr=False)
    """Hash of the whole global batch of a stream; only the first that a loader yields has one."""

    @classmethod
    def of(
        cls,
        collated: Any,
        form: BatchForm,
        *,
        samples: int,
        global_samples: int,
        ids: tuple[int, ...] = (),
        padding: int = 0,
        place: dict[str, Any] | None = None,
        fingerprint: int | None = None,
    ) -> "Batch":
        """Split a collated batch into inputs and target."""
        inputs, target = form.split_up(collated)
        return cls(
            inputs,
            target,
            samples,
            global_samples,
            ids,
            padding,
            collated,
            form,
            place,
            fingerprint,
        )

    @property
    def rows(self) -> int:
        """Samples that pass through the model, including padding."""
        return self.samples + self.padding

    def micro(self, count: int, rows: int | None = None) -> Iterator["Batch"]:
        """Split this local batch into `count` micro-batches of even size, or of `rows` rows each.

        A micro-batch without a sample gets a padding row, so that every worker does equally many
        forwards; one with too few rows repeats its first row.
        """
        if count == 1 and rows in (None, self.rows):
            yield self
            return
        for number in range(count):
            part = slice_of(self.samples, count, number)
            kept = part or range(1)
            length = max(len(kept), rows or 0)
            yield Batch.of(
                self.form.rows_of(self.collated, kept, of=self.rows, length=length),
                self.form,
                samples=len(part),
                global_samples=self.global_samples,
                padding=length - len(part),
            )

    def counted(self, output: Any) -> tuple[Any, Any]:
        """Return an output and the target without padding rows.

        If all rows are padding, one stays: its loss is computed with zero weight.
        """
        rows, kept = self.rows, max(1, self.samples)
        if kept == rows:
            return output, self.target

        def cut(tensor: torch.Tensor) -> torch.Tensor:
            return tensor[:kept] if tensor.ndim and len(tensor) == rows else tensor

        return map_tensors(output, cut), map_tensors(self.target, cut)


def collated(samples: list[Any], device: torch.device, form: BatchForm) -> Batch:
    """Return these samples as one batch, which is local and global."""
    batch, count = to_device(form.collated(samples), device), len(samples)
    return Batch.of(batch, form, samples=count, global_samples=count)


def load(
    data: "Dataset[Any]",
    batches: Batches,
    device: torch.device,
    form: BatchForm,
    *,
    processes: int,
) -> Iterator[Batch]:
    """Yield this worker's local batch of every step, in order."""
    handed_out: deque[list[int]] = deque()
    seeded = draws_numbers(data)
    loader: DataLoader[Any] = DataLoader(
        Seeded(data, batches.seed) if seeded else data,
        batch_sampler=_Remembered(batches, handed_out, with_epoch=seeded),
        num_workers=processes,
        collate_fn=form.collated,
        pin_memory=device.type != "cpu",
        persistent_workers=processes > 0,
        generator=torch.Generator(),  # otherwise it draws from the training's generator
    )
    arriving = iter(loader)  # starts its processes before there is another thread
    with ReadAhead(data, batches) as ahead:
        for step, batch in enumerate(arriving, batches.first_step):
            ahead.reached(step)
            counts, indices = batches.counts(step), handed_out.popleft()
            yield Batch.of(
                to_device(batch, device),
                form,
                samples=counts.samples,
                global_samples=counts.global_samples,
                ids=tuple(indices) if counts.samples else (),
                padding=len(indices) - counts.samples,
            )


@dataclass(frozen=True)
class _Remembered(Sampler[Any]):
    """Batches for a prefetching loader; remembers the samples of each until it arrives."""

    batches: Batches
    handed_out: deque[list[int]]
    with_epoch: bool

    def __iter__(self) -> Iterator[Any]:
        for step, indices in enumerate(self.batches, self.batches.first_step):
            self.handed_out.append(indices)
            yield (self.batches.epoch(step), indices) if self.with_epoch else indices

    def __len__(self) -> int:
        return len(self.batches)
