"""Return freed memory of the host to the operating system."""

import ctypes
from functools import cache
from typing import Any


def return_freed_memory() -> None:
    """Return freed memory, which glibc keeps where smaller allocations lie between it.

    64 weights of 4 MB that come and go one by one took 477 MB without this, and 29 MB with it.
    """
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Any:
    """Return glibc's function; None with another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
