"""Loads torch quickly. No torch at the top of this file."""

import gc


def load_torch() -> None:
    """Load torch without collecting garbage meanwhile, which would cost a fifth of the time.

    What is loaded stays for good, so it is also left out of every later collection.
    """
    gc.disable()
    import torch  # noqa: PLC0415

    torch.compiler.disable(load_torch)  # type: ignore[no-untyped-call] # loads the compiler, as building any optimizer would
    gc.freeze()
    gc.enable()
