"""The order in which a device runs its collectives, over all communicators.

A collective kernel occupies its device while it waits for its peers. So a device runs one at a time
here, in the order in which the host launched them. Two ranks that launch the collectives of two
communicators in different orders deadlock, as NCCL's documentation warns ("Using multiple NCCL
communicators concurrently"). A GPU may have room for both kernels and get through by luck; this
model never has luck. It is what NCCL does with `NCCL_LAUNCH_ORDER_IMPLICIT=1`.
"""

import threading
from collections import defaultdict
from collections.abc import Callable


class LaunchOrder:
    """The collectives of one device that were launched and have not ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._launched: list[object] = []

    def launch(self, kernel: object) -> None:
        """Queue a kernel behind all that were launched before."""
        with self._changed:
            self._launched.append(kernel)

    def wait_for_turn(self, kernel: object, given_up: Callable[[], bool]) -> None:
        """Wait until all earlier kernels have ended, or until `given_up`, told by `wake`."""
        with self._changed:
            self._changed.wait_for(lambda: self._launched[0] is kernel or given_up())

    def end(self, kernel: object) -> None:
        """Let the next kernel run."""
        with self._changed:
            self._launched.remove(kernel)
            self._changed.notify_all()

    def wake(self) -> None:
        """Let waiting kernels look again whether they are given up."""
        with self._changed:
            self._changed.notify_all()


_ORDERS: defaultdict[int, LaunchOrder] = defaultdict(LaunchOrder)


def launch_order(device_index: int) -> LaunchOrder:
    """Return the launch order of a device of this process."""
    return _ORDERS[device_index]
