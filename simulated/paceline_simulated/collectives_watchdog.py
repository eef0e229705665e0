"""The watchdog: ends the process when a collective fails or takes too long, as torch's for NCCL.

The settings have the meaning of torch's, with `TORCH_NCCL_` for `SIMCCL_`:

- `SIMCCL_ASYNC_ERROR_HANDLING`: 0 does nothing, 1 aborts the communicator and ends the process, 2
  only aborts, 3 (default) only ends the process.
- `SIMCCL_ENABLE_MONITORING`: with 1 (default), a second thread ends the process when the watchdog
  itself is stuck for longer than `SIMCCL_HEARTBEAT_TIMEOUT_SEC` (default: 480).

A device with a sticky error ends the process whatever is set (pytorch issue 126544).
"""

import os
import sys
import threading
import time
import weakref
from dataclasses import dataclass

import torch

from paceline_simulated.collectives_communicator import Communicator
from paceline_simulated.collectives_kernel import Kernel

_POLL_SECONDS = 0.1
stuck = threading.Event()
"""Set by a test: watchdogs hang, as in a call of a driver that does not return."""
_ABORTING, _ENDING = (1, 2), (1, 3)


@dataclass(frozen=True)
class Settings:
    """The watchdog's settings when its group was made, as torch reads them."""

    error_handling: int
    monitoring: bool
    heartbeat_timeout_seconds: float

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the settings."""
        return cls(
            int(os.environ.get("SIMCCL_ASYNC_ERROR_HANDLING", "3")),
            os.environ.get("SIMCCL_ENABLE_MONITORING", "1") == "1",
            float(os.environ.get("SIMCCL_HEARTBEAT_TIMEOUT_SEC", "480")),
        )


class Watchdog:
    """A thread that looks after one communicator, and a monitor that looks after the thread."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = weakref.ref(communicator)
        self._settings = Settings.from_environment()
        self._heartbeat = time.monotonic()
        threading.Thread(target=self._watch, name="simccl_watchdog", daemon=True).start()
        if self._settings.monitoring:
            threading.Thread(target=self._monitor, name="simccl_monitor", daemon=True).start()

    def _watch(self) -> None:
        while (communicator := self._communicator()) is not None:
            if not stuck.is_set():
                self._heartbeat = time.monotonic()
                for kernel in communicator.kernels:
                    self._look_at(kernel, communicator)
            del communicator
            time.sleep(_POLL_SECONDS)

    def _look_at(self, kernel: Kernel, communicator: Communicator) -> None:
        try:
            torch.accelerator.current_stream(kernel.device).query()
        except torch.AcceleratorError as error:
            end_process(f"{kernel.device} has failed: {error}")
        seconds = time.monotonic() - kernel.launched_at
        if kernel.error is not None:
            why = f"{kernel.name} failed: {kernel.error}"
        elif seconds > communicator.timeout.total_seconds():
            why = f"{kernel.name} ran for {seconds:.1f} s, more than its timeout"
        else:
            return
        if self._settings.error_handling in _ABORTING:
            communicator.abort()
        if self._settings.error_handling in _ENDING:
            end_process(why)

    def _monitor(self) -> None:
        limit = self._settings.heartbeat_timeout_seconds
        while self._communicator() is not None:
            if time.monotonic() - self._heartbeat > limit:
                end_process(f"the watchdog has been stuck for {limit:.0f} s")
            time.sleep(_POLL_SECONDS)


def end_process(why: str) -> None:
    """Abort the process, as the watchdog does."""
    print(f"simccl's watchdog ends the process: {why}", file=sys.stderr, flush=True)
    os.abort()
