"""Streams: iterable datasets, of which every worker reads all and keeps its own samples.

A stream has no index, so a position in it takes the place of a sample's index. Every worker reads
the whole stream and collates only its slice of each global batch. So the samples of every step are
the same on any number of workers, at the price of reading each sample on every worker.
"""

import base64
import copy
import hashlib
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from paceline.data.batches import Batches
from paceline.data.collation.form import BatchForm, to_device
from paceline.data.collation.nested import map_tensors
from paceline.data.loader import Batch
from paceline.specs import PacelineError

Place = dict[str, Any]
"""A place in a stream, as JSON values: completed `passes`, `samples` read since, and the stream's
own `state`."""

_TENSOR = "base64 of a tensor"

BEGINNING: Place = {"passes": 0, "samples": 0, "state": None}


def is_stream(data: Any) -> bool:
    """Return whether a dataset yields samples and cannot be asked for one by its index."""
    if isinstance(data, DataLoader):
        return data.batch_size is None and hasattr(data, "state_dict")
    return isinstance(data, IterableDataset) or (
        hasattr(data, "__iter__") and not hasattr(data, "__getitem__")
    )


class Stream:
    """An iterable dataset, which can be read from any place."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._has_state = hasattr(data, "state_dict") and hasattr(data, "load_state_dict")
        self._first_state = self.state()

    @property
    def length(self) -> int | None:
        """Number of samples in a pass, if the stream has a length."""
        return len(self._data) if isinstance(self._data, Sized) else None

    def head(self, count: int) -> list[Any]:
        """Return the first samples; a short stream repeats."""
        return list(islice(Reader(self, BEGINNING), count))

    def opened(self, place: Place) -> Iterator[Any]:
        """Return an iterator over the rest of the pass that a place is in."""
        if hasattr(self._data, "set_epoch"):
            self._data.set_epoch(place["passes"])
        if self._has_state:
            state = self._first_state if place["state"] is None else place["state"]
            self._data.load_state_dict(_decoded(state))
        samples = iter(self._data)
        return samples if self._has_state else islice(samples, place["samples"], None)

    def state(self) -> Any:
        """Return the stream's own state after the last sample that it yielded, as JSON values."""
        return _encoded(self._data.state_dict()) if self._has_state else None


class Reader(Iterator[Any]):
    """Reads a stream from a place on; a stream that ends begins again."""

    def __init__(self, stream: Stream, place: Place) -> None:
        self._stream = stream
        self._passes, self._samples = place["passes"], place["samples"]
        self._arriving = stream.opened(place)

    def __next__(self) -> Any:
        for sample in self._arriving:
            self._samples += 1
            return sample
        if self._samples == 0:
            raise PacelineError(
                "the stream has no samples",
                fix="check what it reads, and that it can be read again",
            )
        self._passes, self._samples = self._passes + 1, 0
        self._arriving = self._stream.opened(BEGINNING | {"passes": self._passes})
        return next(self)

    def place(self) -> Place:
        """Return the place after the last sample."""
        state = self._stream.state()
        return {"passes": self._passes, "samples": self._samples, "state": state}


@dataclass
class Cursor:
    """The place in a stream after the last step, the same on every worker."""

    place: Place = field(default_factory=BEGINNING.copy)


class _LocalBatches(IterableDataset[Any]):
    """This worker's collated batches of a stream, each with the place after it.

    The first also has a hash of its whole global batch, which is the same on every worker.
    """

    def __init__(self, stream: Stream, batches: Batches, form: BatchForm, place: Place) -> None:
        self._stream, self._batches, self._form, self._place = stream, batches, form, place

    def __iter__(self) -> Iterator[tuple[Any, Place, int | None]]:
        batches, reader = self._batches, Reader(self._stream, self._place)
        for step, positions in enumerate(batches, batches.first_step):
            begin = batches.begin(step)
            mine = range(positions[0], positions[-1] + 1)
            hashed = hashlib.blake2b(digest_size=4) if step == batches.first_step else None
            kept = []
            for position in range(begin, begin + batches.counts(step).global_samples):
                sample = next(reader)
                if hashed is not None:
                    _add(hashed, sample)
                if position in mine:
                    kept.append(sample)
            fingerprint = int.from_bytes(hashed.digest(), "little") if hashed else None
            yield self._form.collated(kept), reader.place(), fingerprint


def load_stream(
    stream: Stream,
    place: Place,
    batches: Batches,
    device: torch.device,
    form: BatchForm,
    *,
    processes: int,
) -> Iterator[Batch]:
    """Yield this worker's local batch of every step after a place in the stream."""
    loader: DataLoader[Any] = DataLoader(
        _LocalBatches(stream, batches, form, place),
        batch_size=None,
        num_workers=processes,
        collate_fn=_as_it_is,
        pin_memory=device.type != "cpu",
        generator=torch.Generator(),  # otherwise it draws from the training's generator
    )
    for step, (batch, after, fingerprint) in enumerate(loader, batches.first_step):
        counts, positions = batches.counts(step), batches.indices(step)
        yield Batch.of(
            to_device(batch, device),
            form,
            samples=counts.samples,
            global_samples=counts.global_samples,
            ids=tuple(positions[: counts.samples]),
            padding=len(positions) - counts.samples,
            place=after,
            fingerprint=fingerprint,
        )


def _encoded(state: Any) -> Any:
    """Return a copy of a state with its tensors, such as a generator's state, as JSON values."""

    def encode(tensor: torch.Tensor) -> Any:
        content = _bytes(tensor)
        return {
            _TENSOR: base64.b64encode(content).decode(),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
        }

    return map_tensors(state, encode, copy.deepcopy)


def _decoded(state: Any) -> Any:
    if isinstance(state, dict) and _TENSOR in state:
        content = bytearray(base64.b64decode(state[_TENSOR]))
        dtype = getattr(torch, state["dtype"])
        return torch.frombuffer(content, dtype=dtype).reshape(state["shape"])
    if isinstance(state, dict):
        return {key: _decoded(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_decoded(value) for value in state)
    return copy.deepcopy(state)


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    content: bytes = flat.numpy().tobytes()
    return content


def _as_it_is(item: Any) -> Any:
    return item


def _add(hashed: "hashlib.blake2b", sample: Any) -> None:
    """Add the values of a sample to a hash; objects of unknown types count by their type."""

    def add(tensor: torch.Tensor) -> torch.Tensor:
        hashed.update(_bytes(tensor))
        return tensor

    def add_other(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            hashed.update(np.ascontiguousarray(leaf).data)
        elif isinstance(leaf, str | bytes | int | float | list | tuple | None):
            hashed.update(repr(leaf).encode())
        else:
            hashed.update(type(leaf).__name__.encode())
        return leaf

    map_tensors(sample, add, add_other)
