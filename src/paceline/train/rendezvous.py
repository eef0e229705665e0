"""How the workers find each other: worker 0 listens and says where, signed, in the run folder.

A port chosen by the system cannot be taken by another job, and nothing has to be agreed on before.
The listener is bound to the one interface that the other workers reach.
"""

import errno
import json
import socket
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from paceline.cluster import interfaces
from paceline.cluster.interfaces import Interface
from paceline.specs import PacelineError, Run
from paceline.train.place import Place
from paceline.train.store import sign, verified

if TYPE_CHECKING:  # torch.distributed defines TCPStore conditionally, type checkers do not see it
    from torch._C._distributed_c10d import TCPStore
else:
    from torch.distributed import TCPStore

MEETING_TIMEOUT_SECONDS = 300.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Meeting:
    """A store that all workers of a generation reach, and the interface they use."""

    store: TCPStore
    secret: bytes
    interface: Interface


def meet(run: Run, place: Place, port: int | None) -> Meeting:
    """Open the store on worker 0, or find it there."""
    secret = bytes.fromhex(run.secret_file.read_text())
    if place.rank == 0:
        interface = interfaces.outward() if place.nodes > 1 else interfaces.loopback()
        listener = _listen(interface, port)
        port = listener.getsockname()[1]
        store = TCPStore(
            interface.address,
            port,
            is_master=True,
            master_listen_fd=listener.detach(),
            wait_for_workers=False,
            timeout=timedelta(seconds=MEETING_TIMEOUT_SECONDS),
        )
        _announce(run, place.generation, secret, interface.address, port)
        return Meeting(store, secret, interface)
    address, port = _await_announcement(run, place.generation, secret)
    store = TCPStore(
        address,
        port,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=MEETING_TIMEOUT_SECONDS),
    )
    return Meeting(store, secret, interfaces.towards(address))


def _listen(interface: Interface, port: int | None) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((interface.address, port or 0))
        listener.listen(4096)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise PacelineError(
            f"port {port} of {interface.address} ({interface.name}) is taken by another program",
            fix="leave --port out, so that a free one is taken, or give another",
        ) from None
    return listener


def _key(generation: int) -> str:
    return f"rendezvous/{generation}"


def _announce(run: Run, generation: int, secret: bytes, address: str, port: int) -> None:
    where = json.dumps({"address": address, "port": port})
    signature = sign(secret, _key(generation), where.encode()).hex()
    path = run.rendezvous / f"{generation}.json"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({"where": where, "signature": signature}))
    draft.rename(path)


def _await_announcement(run: Run, generation: int, secret: bytes) -> tuple[str, int]:
    path = run.rendezvous / f"{generation}.json"
    deadline = time.monotonic() + MEETING_TIMEOUT_SECONDS
    # Listing the folder makes a network file system ask its server; a bare open may be answered
    # from a cache that still says "no such file".
    while path not in run.rendezvous.iterdir():
        if time.monotonic() > deadline:
            raise PacelineError(
                f"worker 0 did not say where it is within {MEETING_TIMEOUT_SECONDS:.0f} s",
                fix=f"see worker 0's log in {run.logs}; check that {run.path} is on a folder"
                " that all nodes share",
            )
        time.sleep(_POLL_SECONDS)
    said = json.loads(path.read_text())
    signed = bytes.fromhex(said["signature"]) + said["where"].encode()
    where = json.loads(verified(secret, _key(generation), signed))
    return str(where["address"]), int(where["port"])
