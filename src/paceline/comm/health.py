"""Whether this worker's process groups still stand, by evidence instead of error texts.

Collectives also run inside DDP's reducer, FSDP2's hooks and torch's pipeline schedules, which raise
a plain RuntimeError when a peer is lost, as the user's model may for its own reasons. So a region
that communicates asks, once an error has left it, whether its groups are broken.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from paceline.comm.connections import Connections
from paceline.comm.errors import CommunicationError, GroupAborted, PeerLost

_POLL_SECONDS = 0.01


class GroupHealth:
    """Tells the failure of a process group from the user's own error."""

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
        """A region of a step, with user code in it: raise a `CommunicationError` for an error
        whose cause is a broken group, and any other error as it is."""
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
        """A block without user code that creates process groups; raise a `CommunicationError` for
        every failure. Yields a set that holds the opened connections afterwards."""
        with self.waiting(), self.connections.opening() as opened:
            yield opened

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block without user code that waits for peers; raise a `CommunicationError` for every
        failure of torch."""
        try:
            yield
        except CommunicationError:
            raise
        except RuntimeError as error:
            if type(error) is not RuntimeError and not isinstance(error, dist.DistError):
                raise  # an error of ours, such as a forged value in the store
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
        """Whether the generation ends within a lease. Only asked where Gloo's connections are not
        there to tell: NCCL's belong to its own threads."""
        if not dist.is_initialized() or dist.get_backend() == "gloo":
            return False
        deadline = time.monotonic() + self._lease_seconds
        while not self._ended() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return self._ended()
