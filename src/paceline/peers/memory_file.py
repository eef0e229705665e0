"""Files that are only in memory, and are read as any other."""

import mmap
import os
import weakref
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3


class MemoryFile:
    """A file of fixed size without a name; it is gone with the last who refers to it."""

    def __init__(self, size: int, pool: "Pool | None" = None) -> None:
        self.size = size
        self._descriptor, self._mapped = (pool and pool.take(size)) or _new(size)
        give_back = pool.give_back if pool else _free
        end = weakref.finalize(self, give_back, size, self._descriptor, self._mapped)
        end.atexit = False

    @property
    def path(self) -> Path:
        """By which this process can open it."""
        return Path(f"/proc/self/fd/{self._descriptor}")

    @property
    def view(self) -> memoryview:
        """Its bytes; to be let go of before the file itself."""
        return memoryview(self._mapped)

    def views(self, begin: int, count: int) -> Iterator[memoryview]:
        """Some of its bytes; the file stays for as long as somebody goes through them."""
        yield self.view[begin : begin + count]

    def blake3(self, begin: int, count: int) -> str:
        """Of some of its bytes."""
        return blake3(self.view[begin : begin + count]).hexdigest()

    def write(self, offset: int, part: memoryview) -> None:
        """Write some of it, without Python's lock."""
        while part:
            done = os.pwrite(self._descriptor, part, offset)
            part, offset = part[done:], offset + done


class Pool:
    """Files that nobody refers to any more, kept for the next of the same size: new memory has to
    be cleared and mapped page by page, which takes about as long as writing it."""

    def __init__(self) -> None:
        self._free: dict[int, list[tuple[int, mmap.mmap]]] = defaultdict(list)
        self._closed = False

    def take(self, size: int) -> tuple[int, mmap.mmap] | None:
        """One that is free."""
        try:
            return self._free[size].pop()
        except IndexError:
            return None

    def give_back(self, size: int, descriptor: int, mapped: mmap.mmap) -> None:
        """Keep it; called from any thread, also while it is inside another call."""
        if self._closed:
            _free(size, descriptor, mapped)
        else:
            self._free[size].append((descriptor, mapped))

    def close(self) -> None:
        """Free what is kept, and what is given back later."""
        self._closed = True
        for size in list(self._free):
            while (kept := self.take(size)) is not None:
                _free(size, *kept)


def _new(size: int) -> tuple[int, mmap.mmap]:
    descriptor = os.memfd_create("paceline")
    os.ftruncate(descriptor, size)
    return descriptor, mmap.mmap(descriptor, size)


def _free(_size: int, descriptor: int, _mapped: mmap.mmap) -> None:
    os.close(descriptor)  # the mapping ends with the last who refers to it
