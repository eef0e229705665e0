"""Checks of a training's data: a dataset with indices, a stream, or none."""

from collections.abc import Sized
from typing import Any

from torch.utils.data import DataLoader

from paceline.data.streams import Stream, is_stream
from paceline.specs import PacelineError


def samples_of(data: Any) -> int:
    """Return the length of a map-style dataset; raise if it has none or is empty."""
    if isinstance(data, DataLoader):
        raise PacelineError(
            "Training(data=…) is a DataLoader, but Paceline divides and orders the samples itself",
            fix=f"give data=loader.dataset, batch={data.batch_size or 'N'} (the global batch)"
            " and loaders=N",
        )
    if is_stream(data) or not isinstance(data, Sized):
        raise PacelineError(
            f"the dataset ({type(data).__name__}) has no length, so its samples cannot be"
            " divided among workers",
            fix="give a map-style dataset: one with __len__ and __getitem__",
        )
    if len(data) == 0:
        raise PacelineError(
            f"the dataset ({type(data).__name__}) is empty",
            fix="check the path and the filter that it reads with",
        )
    return len(data)


def check_without_index(
    stream: Stream | None, *, epochs: int | None, has_order: bool, loaders: int
) -> None:
    """Raise if a training without indices, on a stream or on data of its own, has other fields
    that need them."""
    what = "makes its own data" if stream is None else "reads a stream"
    if epochs is not None and (stream is None or stream.length is None):
        raise PacelineError(
            f"Training(epochs={epochs}) was given, but a training that {what} has no epochs",
            fix="give steps=… instead",
        )
    if has_order:
        raise PacelineError(
            f"Training(order=…) was given, but a training that {what} has no indices to order",
            fix="leave it out; a stream may shuffle itself, with a fixed seed",
        )
    if loaders > 1:
        raise PacelineError(
            f"Training(loaders={loaders}) was given, but one process reads a stream",
            fix="give loaders=1 to read ahead, or loaders=0",
        )
