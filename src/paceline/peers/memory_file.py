"""Memory-only files that can be read through a path like any other file."""

import mmap
import os
import weakref
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3


class MemoryFile:
    """An anonymous file of fixed size. Its memory is freed with the last reference to it."""

    def __init__(self, size: int, pool: "Pool | None" = None) -> None:
        self.size = size
        self._descriptor, self._mapped = (pool and pool.take(size)) or _new(size)
        give_back = pool.give_back if pool else _free
        end = weakref.finalize(self, give_back, size, self._descriptor, self._mapped)
        end.atexit = False

    @property
    def path(self) -> Path:
        """A path that opens the file in this process."""
        return Path(f"/proc/self/fd/{self._descriptor}")

    @property
    def view(self) -> memoryview:
        """The file's bytes. Release the view before the file."""
        return memoryview(self._mapped)

    def views(self, begin: int, count: int) -> Iterator[memoryview]:
        """Yield a view of some bytes; the file lives as long as the iterator."""
        yield self.view[begin : begin + count]

    def blake3(self, begin: int, count: int) -> str:
        """Return the BLAKE3 hash of a byte range."""
        return blake3(self.view[begin : begin + count]).hexdigest()

    def write(self, offset: int, part: memoryview) -> None:
        """Write bytes at an offset, without holding the GIL."""
        while part:
            done = os.pwrite(self._descriptor, part, offset)
            part, offset = part[done:], offset + done


class Pool:
    """A pool of unreferenced files for reuse by size.

    The kernel clears and maps new memory page by page, which takes about as long as writing it.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[tuple[int, mmap.mmap]]] = defaultdict(list)
        self._closed = False

    def take(self, size: int) -> tuple[int, mmap.mmap] | None:
        """Return a free file of this size, or None."""
        try:
            return self._free[size].pop()
        except IndexError:
            return None

    def give_back(self, size: int, descriptor: int, mapped: mmap.mmap) -> None:
        """Return a file to the pool. Safe from any thread, even during another call to the pool."""
        if self._closed:
            _free(size, descriptor, mapped)
        else:
            self._free[size].append((descriptor, mapped))

    def close(self) -> None:
        """Free the pooled files now, and free later returns at once."""
        self._closed = True
        for size in list(self._free):
            while (kept := self.take(size)) is not None:
                _free(size, *kept)


def _new(size: int) -> tuple[int, mmap.mmap]:
    descriptor = os.memfd_create("paceline")
    os.fchmod(descriptor, 0o600)  # 0777 by default
    os.ftruncate(descriptor, size)
    return descriptor, mmap.mmap(descriptor, size)


def _free(_size: int, descriptor: int, _mapped: mmap.mmap) -> None:
    os.close(descriptor)  # the mapping ends with its last reference
