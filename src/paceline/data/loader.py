"""From a dataset to batches on the device: PyTorch's DataLoader, led by our order."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from paceline.data.batches import Batches, slice_of
from paceline.data.nests import map_tensors
from paceline.specs import PacelineError

Split = Callable[[Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Batch:
    """One worker's share of a global batch, on its device."""

    inputs: Any
    target: Any
    samples: int
    """Samples of this share that count."""
    global_samples: int

    def micro(self, count: int) -> Iterator["Batch"]:
        """This share in `count` parts of nearly equal size.

        A part without a sample is one that counts for nothing, so that every worker does as many
        forwards as the others.
        """
        if count == 1:
            yield self
            return
        for number in range(count):
            part = slice_of(self.samples, count, number)
            rows = slice(part.start, part.stop) if part else slice(0, 1)

            def cut(tensor: torch.Tensor, rows: slice = rows) -> torch.Tensor:
                return tensor[rows]

            yield Batch(
                inputs=map_tensors(self.inputs, cut),
                target=map_tensors(self.target, cut),
                samples=len(part),
                global_samples=self.global_samples,
            )


def load(
    data: "Dataset[Any]",
    batches: Batches,
    device: torch.device,
    *,
    split: Split | None,
    processes: int,
) -> Iterator[Batch]:
    """Yield this worker's share of every step, in order."""
    loader: DataLoader[Any] = DataLoader(
        data,
        batch_sampler=batches,
        num_workers=processes,
        pin_memory=device.type != "cpu",
        persistent_workers=processes > 0,
    )
    for step, collated in enumerate(loader):
        counts = batches.counts(step)
        inputs, target = (split or pair)(collated)
        yield Batch(
            inputs=to_device(inputs, device),
            target=to_device(target, device),
            samples=counts.samples,
            global_samples=counts.global_samples,
        )


def pair(collated: Any) -> tuple[Any, Any]:
    """The inputs and the target of samples that are pairs."""
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
    """Move the tensors in a nest of tuples, lists and mappings; pinned ones without waiting."""
    return map_tensors(value, lambda tensor: tensor.to(device, non_blocking=True))
