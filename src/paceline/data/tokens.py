"""Memory-mapped token files: consecutive integers and nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike

from paceline.data.cache import Cache
from paceline.data.files import Files, Paths
from paceline.data.sharded import Sharded
from paceline.specs import PacelineError


class Tokens(Sharded):
    """Sequences of `length` tokens; the target is the same sequence shifted by one token.

    Sequences do not overlap and do not cross files. With a `window`, that many files are read at a
    time; without, the order covers all samples.
    """

    deterministic = True

    def __init__(
        self,
        paths: Paths,
        length: int,
        dtype: DTypeLike = "uint16",
        *,
        window: int | None = None,
        cache: Cache | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if length < 1:
            raise PacelineError(f"Tokens(length={length}) is too short", fix="give at least 1")
        self._files = Files(paths, cache, storage_options)
        self._length = length
        self._dtype = np.dtype(dtype)
        super().__init__(
            [self._samples_of(number) for number in range(len(self._files))], window=window
        )
        if self._files.remote:
            sizes = [self._files[number].size_bytes for number in range(len(self._files))]
            self.read_ahead = window or len(sizes)
            self._files.cache.check_room(sizes, 2 * self.read_ahead)

    def fetch(self, shard: int) -> None:
        """Fetch a file to this node, unless another process is fetching it."""
        self._files.fetch(shard)

    def _samples_of(self, number: int) -> int:
        file, size = self._files[number], self._dtype.itemsize
        if file.size_bytes % size:
            raise PacelineError(
                f"{file.url} has {file.size_bytes} bytes, not a multiple of the {size} bytes"
                f" of a {self._dtype} token",
                fix="give the dtype that it was written with: Tokens(…, dtype=…)",
            )
        return max(0, file.size_bytes // size - 1) // self._length

    def _load(self, shard: int) -> Any:
        with self._files.open(shard) as file:
            return np.memmap(file, dtype=self._dtype, mode="r")

    def _read(self, opened: Any, rows: list[int]) -> Sequence[Any]:
        samples = []
        for row in rows:
            begin = row * self._length
            stretch = torch.from_numpy(opened[begin : begin + self._length + 1].astype(np.int64))
            samples.append((stretch[:-1], stretch[1:]))
        return samples
