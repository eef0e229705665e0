"""Load torch quickly. This module must not import torch at the top."""

import gc


def load_torch() -> None:
    """Load torch with garbage collection off, which would take a fifth of the time.

    The loaded objects are permanent, so later collections skip them, too.
    """
    gc.disable()
    import torch  # noqa: PLC0415

    torch.compiler.disable(load_torch)  # type: ignore[no-untyped-call] # loads the compiler, as building any optimizer would
    gc.freeze()
    gc.enable()
