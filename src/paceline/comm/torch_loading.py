"""Load torch quickly. This module must not import torch at the top."""

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"


def load_torch(*, compiler: bool = True) -> None:
    """Load torch with garbage collection off, which would take a fifth of the time.

    The loaded objects are permanent, so later collections skip them, too. `compiler`: load it now,
    as building any optimizer would.
    """
    gc.disable()
    import torch  # noqa: PLC0415

    if compiler:
        torch.compiler.disable(load_torch)  # type: ignore[no-untyped-call]
    gc.freeze()
    gc.enable()


@contextmanager
def without_compiler() -> Iterator[None]:
    """Build and step optimizers in this block without loading torch's compiler.

    torch loads it there only to tell it to leave the optimizer alone, and it takes as long as the
    rest of torch. Code that uses more of it gets the whole.
    """
    if _COMPILER in sys.modules:
        yield
        return
    import torch  # noqa: PLC0415

    def whole(name: str) -> Any:
        remove()
        return getattr(importlib.import_module(_COMPILER), name)

    def remove() -> None:
        if sys.modules.get(_COMPILER) is stand_in:
            del sys.modules[_COMPILER]
            with suppress(AttributeError):
                del torch._dynamo

    stand_in: Any = ModuleType(_COMPILER)
    stand_in.disable = lambda function, *_, **__: function
    stand_in.graph_break = lambda: None
    stand_in.__getattr__ = whole
    sys.modules[_COMPILER] = torch._dynamo = stand_in
    try:
        yield
    finally:
        remove()
