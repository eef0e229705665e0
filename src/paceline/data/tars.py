"""WebDataset's tar shards with random access: the members are indexed once.

The `webdataset` package reads tars only sequentially, so it cannot start in the middle.
"""

import json
import mmap
import re
import tarfile
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

from paceline.data.cache import Cache
from paceline.data.files import Files, Paths
from paceline.data.sharded import Decode, Sharded
from paceline.specs import PacelineError

_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")
"""WebDataset's rule: the sample's key is before the first dot, the field after it."""

Members = list[tuple[str, dict[str, tuple[int, int]]]]
"""For each sample its key, and for each field the offset and the size of its bytes."""


class _Shard(NamedTuple):
    content: mmap.mmap
    members: Members


class Tars(Sharded):
    """Samples from tar files: `decode` receives a sample as a dictionary of bytes.

    `{"__key__": "n01/0001", "jpg": b"…", "cls": b"…"}`, as in WebDataset. Before the first use,
    every shard is read once to count its samples, unless `samples_per_shard` is given.
    """

    def __init__(
        self,
        paths: Paths,
        decode: Decode | None = None,
        *,
        samples_per_shard: Sequence[int] | None = None,
        window: int = 8,
        cache: Cache | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._files = Files(paths, cache, storage_options)
        count = len(self._files)
        if samples_per_shard is not None and len(samples_per_shard) != count:
            raise PacelineError(
                f"samples_per_shard has {len(samples_per_shard)} numbers, but there are {count}"
                " shards",
                fix="give one number for each shard, in the order of their names",
            )
        if self._files.remote:
            sizes = [self._files[number].size_bytes for number in range(count)]
            self.read_ahead = window
            self._files.cache.check_room(sizes, 2 * window)
        self.samples_per_shard = tuple(
            samples_per_shard or (len(self._members(number)) for number in range(count))
        )
        """Worth saving: passing it next time avoids reading the shards at the start."""
        super().__init__(self.samples_per_shard, window=window, decode=decode)
        self.deterministic = decode is None

    def fetch(self, shard: int) -> None:
        """Fetch a shard to this node, unless another process is fetching it."""
        self._files.fetch(shard)

    def _load(self, shard: int) -> _Shard:
        members = self._members(shard)
        if len(members) != self._sizes[shard]:
            raise PacelineError(
                f"{self._files[shard].url} has {len(members)} samples, but samples_per_shard says"
                f" {self._sizes[shard]}",
                fix="correct samples_per_shard, or leave it out",
            )
        with self._files.open(shard) as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _Shard(content, members)

    def _read(self, opened: _Shard, rows: list[int]) -> Sequence[Any]:
        samples = []
        for row in rows:
            key, fields = opened.members[row]
            sample: dict[str, Any] = {"__key__": key}
            for name, (begin, size) in fields.items():
                sample[name] = opened.content[begin : begin + size]
            samples.append(sample)
        return samples

    def _members(self, shard: int) -> Members:
        file = self._files[shard]

        def make() -> bytes:
            with self._files.open(shard) as content:
                return json.dumps(members_of(content, file.url)).encode()

        members: Members = json.loads(self._files.cache.metadata(f"members of {file.name}", make))
        return members


def members_of(file: IO[bytes], url: str) -> Members:
    """Return the positions of a tar's samples."""
    members: Members = []
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                named = _NAME.fullmatch(member.name)
                if named is None or not member.isfile():
                    continue
                key, field = named[1], named[2].lower()
                if not members or members[-1][0] != key:
                    members.append((key, {}))
                if field in members[-1][1]:
                    raise PacelineError(
                        f"{url} has the field {field!r} of sample {key!r} twice",
                        fix="write the shard again, with one file per field of a sample",
                    )
                members[-1][1][field] = (member.offset_data, member.size)
            file.seek(tar.offset)
            if file.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
                # tarfile itself accepts a cut between members, or in a header, as the end.
                raise tarfile.ReadError("its end-of-archive mark is missing")
    except tarfile.TarError as error:
        raise PacelineError(
            f"{url} cannot be read as a tar without compression: {error}",
            fix="write it again with `tar -cf`; compressed tars have no random access",
        ) from error
    return members
