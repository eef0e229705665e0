"""Whether this worker's process groups are intact, by evidence instead of error messages.

Collectives also run inside DDP's reducer, FSDP2's hooks and torch's pipeline schedules. These raise
a plain RuntimeError when a peer is lost, and the user's model may raise one for its own reasons. So
after an error, code that communicates checks whether its groups are broken.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

import torch
import torch.distributed as dist

from paceline.comm.connections import Connections
from paceline.comm.group_errors import CommunicationError, GroupAborted, PeerLost
from paceline.comm.update_gate import UpdateGate

_POLL_SECONDS = 0.01
_UPDATE_SECONDS = 1.0
"""Maximum time for which an abort waits for a queued update that would spoil the state."""
_GATED_SECONDS = 0.1
"""The same, for one that the gate would only make a worker repeat."""
_MOST_LEASES = 0.7
"""The same, in leases: others take a worker that says nothing for a lease for lost."""


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
        self._update: torch.Event | None = None
        """The end of the last update of the weights, on the device."""
        self._is_updating = False
        self._lock = threading.Lock()
        self.gate = UpdateGate()
        """Closed for queued updates before the groups are aborted."""
        self.state_is_spoiled = False
        """Whether an update of the weights may have used what aborted collectives left."""

    def is_over(self) -> bool:
        """Return whether the groups were aborted, or membership has ended their generation."""
        return self.connections.shut_down or self._ended()

    def check(self, device: torch.device) -> None:
        """Raise `GroupAborted` if the groups of an accelerator were aborted; never waits.

        Its aborted collectives raise nothing: they leave partial sums. So what was computed from
        them counts only if the groups still stand afterwards.
        """
        if device.type != "cpu" and self.is_over():
            raise GroupAborted("the process groups were aborted during the step")

    def check_arrived(self, device: torch.device) -> None:
        """Wait until all that was received is on the device; raise `GroupAborted` if it is not
        whole."""
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
            self.check(device)

    def begin_update(self, device: torch.device) -> None:
        """Begin to queue an update of the weights, if the groups still stand; never waits."""
        if device.type != "cpu":
            with self._lock:
                self.check(device)
                self._is_updating = True

    def end_update(self, device: torch.device) -> torch.Event | None:
        """Note that an update was queued, and return the event that ends it on an accelerator.

        An update that failed on the way stays begun.
        """
        if device.type != "cpu":
            self._update = torch.accelerator.current_stream(device).record_event()
            self._is_updating = False
        return self._update

    def begin_abort(self) -> None:
        """Prepare to abort the groups, from any thread: from here on, no update begins.

        An update that is still queued at the abort runs on partial sums, unless it reads the gate:
        the state is taken for spoiled. One that does not depend on a lost peer ends soon.
        """
        with self._lock:
            self.connections.shut_down = True
        seconds = _GATED_SECONDS if self.gate.is_used else _UPDATE_SECONDS
        if self._lease_seconds:  # the control plane is silent meanwhile
            seconds = min(seconds, _MOST_LEASES * self._lease_seconds)
        deadline = time.monotonic() + seconds
        while not self._is_update_done():
            if time.monotonic() > deadline:
                with self._lock:
                    if not self._is_update_done():
                        self.gate.close()
                        self.state_is_spoiled = True
                return
            time.sleep(_POLL_SECONDS)

    def _is_update_done(self) -> bool:
        try:
            return not self._is_updating and (self._update is None or self._update.query())
        except torch.AcceleratorError:  # the device has failed, which the training meets itself
            return False

    def forget_updates(self) -> None:
        """Forget the updates so far: the device has done all, and skipped those of partial sums."""
        with self._lock:
            self._update, self._is_updating, self.state_is_spoiled = None, False, False

    def begin_generation(self) -> None:
        """Begin to train with a restored state."""
        self.forget_updates()
        self.gate.open()

    def communicating(self) -> AbstractContextManager[None]:
        """Run a part of a step that contains user code.

        Raises a `CommunicationError` for an error caused by a broken group, and any other error
        unchanged.
        """
        return _Communicating(self)

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
            raise self.failure(error) or PeerLost(str(error)) from error

    def failure(self, error: RuntimeError) -> CommunicationError | None:
        """Return the failure of a process group that explains an error; None without evidence."""
        if isinstance(error, torch.OutOfMemoryError | torch.AcceleratorError):
            return None
        if self.is_over():
            return GroupAborted(str(error))
        if isinstance(error, dist.DistError) or self.connections.broken or self._ends_soon():
            return PeerLost(str(error))
        return None

    def explain(self, error: Exception) -> None:
        """Raise `GroupAborted` if an error may come from values of an aborted collective."""
        aborts_silently = dist.is_initialized() and dist.get_backend() != "gloo"
        if aborts_silently and self.is_over():
            raise GroupAborted(f"{type(error).__name__}: {error}") from error

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


class _Communicating(AbstractContextManager[None]):
    """A class, because a generator costs a step several microseconds."""

    __slots__ = ("_health",)

    def __init__(self, health: GroupHealth) -> None:
        self._health = health

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, RuntimeError):
            if isinstance(error, CommunicationError):
                return
            failure = self._health.failure(error)
            if failure is not None:
                raise failure from error
        elif isinstance(error, ValueError | ArithmeticError | LookupError):
            self._health.explain(error)
