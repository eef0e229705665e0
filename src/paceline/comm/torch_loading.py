"""Load torch quickly. This module must not import torch at the top."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Load modules in this block with garbage collection off, which would take a fifth of the time.

    The loaded objects are permanent, so later collections skip them, too. So are all objects made
    before: use this only in processes that Paceline starts, never in a notebook's kernel.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def load_torch(*, compiler: bool = True) -> None:
    """Load torch; and its compiler now, as building any optimizer would, unless told otherwise."""
    with loading():
        import torch  # noqa: PLC0415

        if compiler:
            torch.compiler.disable(load_torch)  # type: ignore[no-untyped-call]
