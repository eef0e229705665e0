"""Whether this worker's process groups are intact, by evidence instead of error messages.

Collectives also run inside DDP's reducer, FSDP2's hooks and torch's pipeline schedules. These raise
a plain RuntimeError when a peer is lost, and the user's model may raise one for its own reasons. So
after an error, code that communicates checks whether its groups are broken.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from paceline.comm.connections import Connections
from paceline.comm.group_errors import CommunicationError, GroupAborted, PeerLost

_POLL_SECONDS = 0.01


class GroupHealth:
    """Distinguishes the failure of a process group from the user's own error."""

    def __init__(
        self,
        connections: Connections,
        ended: Callable[[], bool] = lambda: False,
        lease_seconds: float = 0.0,
    ) -> None:
        self.connections = connections
        self._ended = ended
        """Whether the membership has ended this worker's generation."""
        self._lease_seconds = lease_seconds

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """Run a part of a step that contains user code.

        Raises a `CommunicationError` for an error caused by a broken group, and any other error
        unchanged.
        """
        try:
            yield
        except CommunicationError:
            raise
        except RuntimeError as error:
            failure = self._failure(error)
            if failure is None:
                raise
            raise failure from error

    @contextmanager
    def connecting(self) -> Iterator[set[str]]:
        """Run a block without user code that creates process groups.

        Raises a `CommunicationError` for every failure. Yields a set that holds the opened
        connections afterwards.
        """
        with self.waiting(), self.connections.opening() as opened:
            yield opened

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Run a block without user code that waits for peers.

        Raises a `CommunicationError` for every failure in torch.
        """
        try:
            yield
        except CommunicationError:
            raise
        except RuntimeError as error:
            if type(error) is not RuntimeError and not isinstance(error, dist.DistError):
                raise  # one of Paceline's errors, such as a forged value in the store
            raise self._failure(error) or PeerLost(str(error)) from error

    def _failure(self, error: RuntimeError) -> CommunicationError | None:
        if isinstance(error, torch.OutOfMemoryError):
            return None
        if self.connections.shut_down or self._ended():
            return GroupAborted(str(error))
        if isinstance(error, dist.DistError) or self.connections.broken or self._ends_soon():
            return PeerLost(str(error))
        return None

    def _ends_soon(self) -> bool:
        """Return whether the generation ends within a lease.

        Checked only without Gloo, because the connections give no evidence: NCCL's own threads hold
        them.
        """
        if not dist.is_initialized() or dist.get_backend() == "gloo":
            return False
        deadline = time.monotonic() + self._lease_seconds
        while not self._ended() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return self._ended()
