"""Loads the trainer and torch, which takes longer than most of a start. No torch at the top."""

import os
import threading

from paceline.comm.torch_loading import load_torch

_GENTLE = 15
"""As `nice` counts: where cores are short, a thirtieth of what others get."""


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
