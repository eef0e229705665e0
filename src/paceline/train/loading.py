"""Loading torch, which takes longer than most of what is done before it. No torch at the top."""

import gc
import os
import threading

_GENTLE = 15
"""As `nice` counts: where cores are short, a thirtieth of what others get."""


def load_torch() -> None:
    """Load torch without collecting garbage meanwhile, which would cost a fifth of the time.

    What is loaded stays for good, so it is also left out of every later collection.
    """
    gc.disable()
    import torch  # noqa: PLC0415

    torch.compiler.disable(load_torch)  # type: ignore[no-untyped-call] # loads the compiler, as building any optimizer would
    gc.freeze()
    gc.enable()


def load_trainer() -> None:
    """Load torch and all that a training needs of this room."""
    load_torch()
    import paceline.train.fit  # noqa: F401, PLC0415


def load_gently() -> None:
    """Load torch and the trainer while others train on this node, who go first.

    On a thread of its own, since priorities are each thread's, and nobody but root can take back
    what was given up.
    """

    def load() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _GENTLE)
        load_trainer()

    thread = threading.Thread(target=load, name="loading")
    thread.start()
    thread.join()
