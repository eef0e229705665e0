"""The store through which the workers of a generation create their process groups.

The system chooses its port, so that no other job can have taken it, unless the user names one for a
run on one machine. The listener is bound only to the interface that the other workers reach.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from paceline.cluster.interfaces import Interface, listener
from paceline.comm.group_errors import PeerLost
from paceline.comm.torch_internals import TCPStore

STORE_TIMEOUT_SECONDS = 300.0
_TRY_SECONDS = 0.5


@dataclass(frozen=True)
class Rendezvous:
    """The result of a rendezvous: the generation's shared store, and the interface to use."""

    store: TCPStore
    secret: bytes
    interface: Interface


def hosted_store(interface: Interface, port: int | None = None) -> TCPStore:
    """Return a store that listens in this process, on one interface; None for any free port."""
    found = listener(interface, port)
    return TCPStore(
        interface.address,
        found.getsockname()[1],
        is_master=True,
        master_listen_fd=found.detach(),
        wait_for_workers=False,
        timeout=timedelta(seconds=STORE_TIMEOUT_SECONDS),
    )


def reached_store(
    address: str, port: int, given_up: Callable[[], bool], seconds: float = 10.0
) -> TCPStore:
    """Connect to the store of a worker that was reachable a moment ago.

    Each try is short, because a try cannot be interrupted. So this fails soon after `given_up`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            store = TCPStore(
                address,
                port,
                is_master=False,
                wait_for_workers=False,
                timeout=timedelta(seconds=_TRY_SECONDS),
            )
        except RuntimeError as error:
            if given_up() or time.monotonic() > deadline:
                raise PeerLost(str(error)) from error
        else:
            store.set_timeout(timedelta(seconds=STORE_TIMEOUT_SECONDS))
            return store
