"""Load torch quickly. This module must not import torch at the top."""

import gc
import os


def load_torch() -> None:
    """Load torch with garbage collection off, which would take a fifth of the time.

    The loaded objects are permanent, so later collections skip them, too.
    """
    # Asking for CUDA devices then does not start CUDA, which would forbid it to forked processes,
    # such as the check before a run.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    gc.disable()
    import torch  # noqa: PLC0415

    torch.compiler.disable(load_torch)  # type: ignore[no-untyped-call] # loads the compiler, as building any optimizer would
    gc.freeze()
    gc.enable()
