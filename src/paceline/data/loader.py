"""From a dataset to batches on the device: PyTorch's DataLoader, in Paceline's sample order."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from paceline.data.batches import Batches
from paceline.data.nested import map_tensors, tensors_of
from paceline.data.prefetch import ReadAhead
from paceline.data.randomness import Seeded, draws_numbers
from paceline.specs import PacelineError
from paceline.specs.even_division import slice_of

Split = Callable[[Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Batch:
    """One worker's local batch, on its device."""

    inputs: Any
    target: Any
    samples: int
    """Samples of this local batch that count; further rows are padding."""
    global_samples: int
    ids: tuple[int, ...] = ()
    """Indices of these samples in the dataset; empty for a micro-batch."""

    @property
    def rows(self) -> int:
        """Samples that pass through the model, including padding."""
        return len(next(tensors_of((self.inputs, self.target))))

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
            begin, length = (part.start, len(part)) if part else (0, 1)
            missing = max(0, (rows or 0) - length)

            def cut(
                tensor: torch.Tensor, begin: int = begin, length: int = length, more: int = missing
            ) -> torch.Tensor:
                kept = tensor[begin : begin + length]
                return torch.cat([kept, kept[:1].expand(more, *kept.shape[1:])]) if more else kept

            yield Batch(
                inputs=map_tensors(self.inputs, cut),
                target=map_tensors(self.target, cut),
                samples=len(part),
                global_samples=self.global_samples,
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


def collated(
    data: "Dataset[Any]", samples: int, device: torch.device, *, split: Split | None
) -> Batch:
    """Return the first samples of a dataset as one batch; a short dataset repeats."""
    length = len(data)  # type: ignore[arg-type] # map-style, as Training has checked
    batch = collate([data[number % length] for number in range(samples)])
    inputs, target = (split or pair)(batch)
    return Batch(to_device(inputs, device), to_device(target, device), samples, samples)


def load(
    data: "Dataset[Any]",
    batches: Batches,
    device: torch.device,
    *,
    split: Split | None,
    processes: int,
) -> Iterator[Batch]:
    """Yield this worker's local batch of every step, in order."""
    handed_out: deque[list[int]] = deque()
    seeded = draws_numbers(data)
    loader: DataLoader[Any] = DataLoader(
        Seeded(data, batches.seed) if seeded else data,
        batch_sampler=_Remembered(batches, handed_out, with_epoch=seeded),
        num_workers=processes,
        collate_fn=collate,
        pin_memory=device.type != "cpu",
        persistent_workers=processes > 0,
        generator=torch.Generator(),  # otherwise it draws from the training's generator
    )
    arriving = iter(loader)  # starts its processes before there is another thread
    with ReadAhead(data, batches) as ahead:
        for step, collated in enumerate(arriving, batches.first_step):
            ahead.reached(step)
            counts, indices = batches.counts(step), handed_out.popleft()
            inputs, target = (split or pair)(collated)
            yield Batch(
                inputs=to_device(inputs, device),
                target=to_device(target, device),
                samples=counts.samples,
                global_samples=counts.global_samples,
                ids=tuple(indices[: counts.samples]),
            )


def collate(samples: list[Any]) -> Any:
    """Stack samples into a batch, as PyTorch's DataLoader does."""
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        said = (str(error).splitlines() or [""])[0]
        raise PacelineError(
            f"the samples of a batch cannot be stacked: {said}",
            fix="return tensors or numbers of one shape from the dataset, for example padded",
        ) from error


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


def pair(collated: Any) -> tuple[Any, Any]:
    """Return the inputs and the target of samples that are pairs."""
    if isinstance(collated, list | tuple) and len(collated) == 2:
        return collated[0], collated[1]
    form = type(collated).__name__
    if isinstance(collated, Mapping):
        form += f" with the keys {', '.join(str(key) for key in collated)}"
    elif isinstance(collated, list | tuple):
        form += f" of {len(collated)}"
    raise PacelineError(
        f"a batch of this dataset is a {form}, not a pair (inputs, target)",
        fix="return (inputs, target) from the dataset, or give"
        " Training(split=lambda batch: (inputs, target))",
    )


def to_device(value: Any, device: torch.device) -> Any:
    """Move nested tensors to a device; pinned ones asynchronously."""
    return map_tensors(value, lambda tensor: tensor.to(device, non_blocking=True))
