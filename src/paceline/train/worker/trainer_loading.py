"""Import of the trainer and torch, most of a worker's startup time. No torch at the top."""

import os
import threading

from paceline.comm.torch_loading import load_torch

_GENTLE = 15
"""Nice value: on busy cores, about a thirtieth of the CPU time of the others."""


def load_trainer() -> None:
    """Load torch and the trainer."""
    load_torch()
    import paceline.train.fit  # noqa: F401, PLC0415


def load_gently() -> None:
    """Load torch and the trainer at low priority, so that workers training on this node go first.

    This uses a separate thread: priority is per thread, and only root can raise it again.
    """

    def load() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _GENTLE)
        load_trainer()

    thread = threading.Thread(target=load, name="loading")
    thread.start()
    thread.join()
