"""Parquet files: a row group is a shard, read once per window."""

import mmap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from paceline.data.cache import Cache
from paceline.data.files import Files, Paths
from paceline.data.sharded import Decode, Sharded
from paceline.specs import PacelineError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise PacelineError(
        f"Parquet files need pyarrow: {error}", fix="pip install 'paceline[parquet]'"
    ) from error


class _Group(NamedTuple):
    file: int
    number: int
    rows: int
    size_bytes: int


class Parquet(Sharded):
    """The rows of Parquet files: `decode` receives a row as a dictionary, column -> value.

    From remote files, only the needed row groups and columns are fetched. A window of row groups is
    in memory at a time.
    """

    def __init__(
        self,
        paths: Paths,
        decode: Decode | None = None,
        *,
        columns: Sequence[str] | None = None,
        window: int = 4,
        cache: Cache | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._files = Files(paths, cache, storage_options)
        self._columns = None if columns is None else list(columns)
        self._groups = [
            group for number in range(len(self._files)) for group in self._groups_of(number)
        ]
        super().__init__([group.rows for group in self._groups], window=window, decode=decode)
        self.deterministic = decode is None
        if self._files.remote:
            self.read_ahead = window
            sizes = [group.size_bytes for group in self._groups]
            self._files.cache.check_room(sizes, 2 * window)

    def fetch(self, shard: int) -> None:
        """Fetch a row group to this node, unless another process is fetching it."""
        group = self._groups[shard]
        if self._files[group.file].remote:
            self._files.cache.bring(
                self._name(group), group.size_bytes, partial(self._write, group), wait=False
            )

    def _groups_of(self, number: int) -> list[_Group]:
        url = self._files[number].url
        try:
            with self._files.stream(number) as file:
                metadata = pq.read_metadata(file)
        except pa.ArrowInvalid as error:
            raise PacelineError(
                f"{url} is not a Parquet file: {error}", fix="check the path"
            ) from error
        names = metadata.schema.to_arrow_schema().names
        if missing := set(self._columns or ()) - set(names):
            raise PacelineError(
                f"{url} has no column {', '.join(sorted(missing))}",
                fix=f"choose from its columns: {', '.join(names)}",
            )
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        return [
            _Group(number, index, group.num_rows, group.total_byte_size)
            for index, group in enumerate(groups)
        ]

    def _load(self, shard: int) -> Any:
        group = self._groups[shard]
        if not self._files[group.file].remote:
            return self._table(group)
        with self._files.cache.open(
            self._name(group), group.size_bytes, partial(self._write, group)
        ) as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(content)).read_all()

    def _read(self, opened: Any, rows: list[int]) -> Sequence[Any]:
        samples: list[Any] = opened.take(rows).to_pylist()
        return samples

    def _table(self, group: _Group) -> Any:
        with self._files.stream(group.file) as file:
            return pq.ParquetFile(file).read_row_group(
                group.number, columns=self._columns, use_threads=False
            )

    def _name(self, group: _Group) -> str:
        return f"row group {group.number} of {self._files[group.file].name}: {self._columns}"

    def _write(self, group: _Group, path: Path) -> None:
        """Write a row group in a format that can be memory-mapped."""
        table = self._table(group)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
