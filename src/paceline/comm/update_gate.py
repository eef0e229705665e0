"""A flag of the host that an accelerator reads in the order of its queue.

An aborted collective raises nothing and leaves partial sums, and an update of the weights that is
queued behind it cannot be called back. So each update reads the flag when its turn comes, after its
collectives, and skips itself if the flag was set. The abort sets the flag before it releases any
collective: what passes the gate has complete sums.
"""

import torch


class UpdateGate:
    """Open while the process groups stand; closed from another thread before they are aborted."""

    def __init__(self) -> None:
        self.is_closed = False
        self._flag: torch.Tensor | None = None
        """In pinned memory, which the device reads when a queued copy runs, not when it is queued;
        made by the first reading."""

    @property
    def is_used(self) -> bool:
        """Whether updates look at it."""
        return self._flag is not None

    def reading(self, device: torch.device) -> torch.Tensor:
        """Queue a look at the gate: a number on the device, 1 if it is closed by then."""
        if self._flag is None:
            self._flag = torch.zeros((), pin_memory=True)
            if self.is_closed:
                self._flag.fill_(1)
        return self._flag.to(device, non_blocking=True)

    def close(self) -> None:
        """Let no update pass whose reading has not run yet."""
        self.is_closed = True  # first, so that what ended while it was open has passed
        if self._flag is not None:
            self._flag.fill_(1)

    def open(self) -> None:
        """Let updates pass again; the device has done all that was queued before."""
        self.is_closed = False
        if self._flag is not None:
            self._flag.zero_()
