"""The form of a training's batches: how they are collated, counted, cut and split.

Tensors whose first dimension is the sample, in mappings, tuples, lists and dataclasses, need no
functions of the user. Any other object with `to(device)` is a batch too, once these say how.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import default_collate

from paceline.data.collation.nested import map_tensors, tensors_of
from paceline.specs import PacelineError

Collate = Callable[[list[Any]], Any]
Size = Callable[[Any], int]
Cut = Callable[[Any, range], Any]
Split = Callable[[Any], tuple[Any, Any]]


@dataclass(frozen=True)
class BatchForm:
    """A training's functions for its batches; None stands for the default."""

    collate: Collate | None = None
    """`collate(samples)`: return a batch."""
    size: Size | None = None
    """`size(batch)`: return the number of samples."""
    cut: Cut | None = None
    """`cut(batch, rows)`: return a batch of a range of the samples."""
    split: Split | None = None
    """`split(batch)`: return `(inputs, target)`."""

    def collated(self, samples: list[Any]) -> Any:
        """Return a batch of these samples; raise if it has another number of samples."""
        if self.collate is None:
            return _stacked(samples)
        batch = self.collate(samples)
        found = self.counted(batch)
        if found not in (None, len(samples)):
            raise PacelineError(
                f"Training(collate=…) was given {len(samples)} samples and returned a batch of"
                f" {found}",
                fix="return all of them; if the first dimension of the batch's tensors is not the"
                " sample, give Training(size=lambda batch: …)",
            )
        return batch

    def counted(self, batch: Any) -> int | None:
        """Return the number of samples of a collated batch; None if it is unknown."""
        if self.size is not None:
            return int(self.size(batch))
        first = next(tensors_of(batch), None)
        return len(first) if first is not None and first.ndim else None

    def split_up(self, batch: Any) -> tuple[Any, Any]:
        """Return the inputs and the target of a batch."""
        return (self.split or pair)(batch)

    def rows_of(self, batch: Any, rows: range, *, of: int, length: int) -> Any:
        """Return a range of the `of` samples of a batch; repeat its first one up to `length`."""
        missing = length - len(rows)
        if self.cut is None:
            return _cut(batch, rows, of, missing)
        if missing:
            raise PacelineError(
                f"a pipeline needs micro-batches of {length} samples, and Training(cut=…) cannot"
                f" repeat one where only {len(rows)} are left",
                fix="use a batch that the micro-batches divide, or another layout: --shards",
            )
        return self.cut(batch, rows)


def to_device(value: Any, device: torch.device) -> Any:
    """Move a batch to a device; pinned tensors asynchronously."""
    return map_tensors(
        value,
        # The comparison takes a quarter of the time of a copy that turns out not to be needed.
        lambda tensor: tensor if tensor.device == device else tensor.to(device, non_blocking=True),
        lambda leaf: leaf.to(device) if hasattr(leaf, "to") else leaf,
    )


def pair(batch: Any) -> tuple[Any, Any]:
    """Return the inputs and the target of samples that are pairs."""
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return batch[0], batch[1]
    form = type(batch).__name__
    if isinstance(batch, Mapping):
        form += f" with the keys {', '.join(str(key) for key in batch)}"
    elif isinstance(batch, list | tuple):
        form += f" of {len(batch)}"
    raise PacelineError(
        f"a batch of this dataset is a {form}, not a pair (inputs, target)",
        fix="return (inputs, target) from the dataset, or give"
        " Training(split=lambda batch: (inputs, target))",
    )


def _stacked(samples: list[Any]) -> Any:
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        said = (str(error).splitlines() or [""])[0]
        raise PacelineError(
            f"the samples of a batch cannot be stacked: {said}",
            fix="give Training(collate=…), a function from a list of samples to a batch, which"
            " pads them or joins them in another way",
        ) from error


def _cut(batch: Any, rows: range, of: int, missing: int) -> Any:
    """Cut all tensors along the first dimension; repeat the first row `missing` times."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim == 0 or len(tensor) != of:
            raise _uncut(f"a tensor of shape {list(tensor.shape)} has no row per sample", of)
        kept = tensor[rows.start : rows.stop]
        return torch.cat([kept, kept[:1].expand(missing, *kept.shape[1:])]) if missing else kept

    def cut_other(leaf: Any) -> Any:
        if hasattr(leaf, "to"):
            raise _uncut(f"Paceline does not know the samples of a {type(leaf).__name__}", of)
        if isinstance(leaf, list | tuple) and len(leaf) == of:
            kept: Any = leaf[rows.start : rows.stop]
            return kept + kept[:1] * missing
        return leaf

    return map_tensors(batch, cut, cut_other)


def _uncut(why: str, samples: int) -> PacelineError:
    return PacelineError(
        f"a batch of {samples} samples must be cut into smaller ones (by micro_batch, pipeline or"
        f" canonical parts), but {why}",
        fix="give Training(cut=lambda batch, rows: …), which returns a batch of the samples in a"
        " range; or a layout that does not cut batches",
    )
