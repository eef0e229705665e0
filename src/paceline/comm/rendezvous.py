"""Rendezvous: worker 0 listens and publishes its signed address in the run folder.

The system chooses the port, so no other job can have taken it and nothing must be configured. The
listener is bound only to the interface that the other workers reach. Where nodes share no folder,
`PACELINE_LEADER` names worker 0's node and port instead.
"""

import errno
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from paceline.cluster import interfaces
from paceline.cluster.interfaces import Interface
from paceline.comm.group_errors import PeerLost
from paceline.comm.signed_store import ForgedValue, sign, verified
from paceline.comm.torch_internals import TCPStore
from paceline.specs import TOO_FEW_EXIT_CODE, Member, PacelineError, Placement, Run, RunOver
from paceline.specs.owned_files import read_bounded, write_owned

RENDEZVOUS_TIMEOUT_SECONDS = 300.0
_CONNECTING_SECONDS, _TRY_SECONDS = 10.0, 0.5
_POLL_SECONDS = 0.02
LEADER_VARIABLE = "PACELINE_LEADER"
"""Environment variable with `HOST:PORT` of worker 0, for nodes that share no folder."""
_MOST_BYTES = 64 << 10
"""Maximum size of the secret and of a signed address, which have hundreds of bytes."""


class RendezvousTimeout(PacelineError):
    """Some workers did not arrive in time; a retry may succeed."""

    exit_code = TOO_FEW_EXIT_CODE


@dataclass(frozen=True)
class Rendezvous:
    """The result of a rendezvous: the generation's shared store, and the interface to use."""

    store: TCPStore
    secret: bytes
    interface: Interface


def secret_of(run: Run) -> bytes:
    """Return the secret by which the workers of a run authenticate each other."""
    return bytes.fromhex(read_bounded(run.secret_file, _MOST_BYTES, own=True).decode())


def join_rendezvous(run: Run, placement: Placement, port: int | None) -> Rendezvous:
    """Open the store on worker 0; connect to it on the other workers."""
    secret = secret_of(run)
    leader = _named_leader()
    if placement.rank == 0:
        port = leader[1] if leader else port
        interface = interfaces.outward() if placement.nodes > 1 else interfaces.loopback()
        store = hosted_store(interface, port)
        _announce(run, placement.generation, secret, interface.address, store.port)
        return Rendezvous(store, secret, interface)
    address, port = (
        _await_listener(*leader)
        if leader
        else _await_announcement(run, placement.generation, secret)
    )
    try:
        store = _store_at(address, port, RENDEZVOUS_TIMEOUT_SECONDS)
    except RuntimeError as error:
        raise RendezvousTimeout(
            f"worker 0 cannot be reached at {address}:{port}: {error}",
            fix=f"see worker 0's log in {run.logs}; check that the nodes reach each other",
        ) from error
    return Rendezvous(store, secret, interfaces.towards(address))


def hosted_store(interface: Interface, port: int | None) -> TCPStore:
    """Return a store that listens in this process, on one interface."""
    listener = _listen(interface, port)
    return TCPStore(
        interface.address,
        listener.getsockname()[1],
        is_master=True,
        master_listen_fd=listener.detach(),
        wait_for_workers=False,
        timeout=timedelta(seconds=RENDEZVOUS_TIMEOUT_SECONDS),
    )


def reached_store(address: str, port: int, given_up: Callable[[], bool]) -> TCPStore:
    """Connect to the store of a worker that was reachable a moment ago.

    Each try is short, because a try cannot be interrupted. So this fails soon after `given_up`.
    """
    deadline = time.monotonic() + _CONNECTING_SECONDS
    while True:
        try:
            store = _store_at(address, port, _TRY_SECONDS)
        except RuntimeError as error:
            if given_up() or time.monotonic() > deadline:
                raise PeerLost(str(error)) from error
        else:
            store.set_timeout(timedelta(seconds=RENDEZVOUS_TIMEOUT_SECONDS))
            return store


def _store_at(address: str, port: int, seconds: float) -> TCPStore:
    """Connect to another worker's store; `seconds` limits the connection and each request."""
    return TCPStore(
        address,
        port,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=seconds),
    )


def announce_leader(run: Run, secret: bytes, generation: int, leader: Member) -> None:
    """Publish a generation's leader in the run folder, for processes that want to join."""
    path = run.rendezvous / f"leader-{generation}.json"
    _write_signed(path, secret, _leader_key(generation), leader.model_dump_json())


def found_leader(run: Run, secret: bytes) -> Member | None:
    """Return the latest generation's leader; None if this start of the run has none yet."""
    newest = run.newest_generation
    if newest is None or newest < run.job.first_generation:
        return None
    text = read_bounded(run.rendezvous / f"leader-{newest}.json", _MOST_BYTES)
    said = _read_signed(text, secret, _leader_key(newest))
    return Member.model_validate_json(said)


def awaited_leader(run: Run, secret: bytes) -> Member:
    """Wait for the latest generation's leader; raise `RunOver` if the run has ended."""
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT_SECONDS
    while (leader := found_leader(run, secret)) is None:
        if run.outcome_file.exists():
            raise RunOver
        if time.monotonic() > deadline:
            raise RendezvousTimeout(
                f"found no workers to join within {RENDEZVOUS_TIMEOUT_SECONDS:.0f} s",
                fix=f"see the workers' logs in {run.logs}",
            )
        time.sleep(_POLL_SECONDS)
    return leader


def _leader_key(generation: int) -> str:
    return f"leader/{generation}"


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
            fix="leave --port out to use a free one, or give another",
        ) from None
    return listener


def _key(generation: int) -> str:
    return f"rendezvous/{generation}"


def _announce(run: Run, generation: int, secret: bytes, address: str, port: int) -> None:
    where = json.dumps({"address": address, "port": port})
    _write_signed(run.rendezvous / f"{generation}.json", secret, _key(generation), where)


def _write_signed(path: Path, secret: bytes, key: str, where: str) -> None:
    signature = sign(secret, key, where.encode()).hex()
    write_owned(path, json.dumps({"where": where, "signature": signature}))


def _read_signed(text: bytes, secret: bytes, key: str) -> bytes:
    """Return the contents of a signed file; raise `ForgedValue` if the signature is wrong."""
    try:
        said = json.loads(text)
        signed = bytes.fromhex(said["signature"]) + said["where"].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ForgedValue("a worker's address file is malformed") from None
    return verified(secret, key, signed)


def _await_announcement(run: Run, generation: int, secret: bytes) -> tuple[str, int]:
    path = run.rendezvous / f"{generation}.json"
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT_SECONDS
    # Listing the folder makes a network file system ask its server; a plain open may be answered
    # from a cache that still says "no such file".
    while path not in run.rendezvous.iterdir():
        if time.monotonic() > deadline:
            raise RendezvousTimeout(
                f"worker 0 did not announce its address within {RENDEZVOUS_TIMEOUT_SECONDS:.0f} s",
                fix=f"see worker 0's log in {run.logs}; check that all nodes share {run.path}",
            )
        time.sleep(_POLL_SECONDS)
    return _announced(read_bounded(path, _MOST_BYTES), generation, secret)


def _named_leader() -> tuple[str, int] | None:
    """Return the host and port that the environment gives of worker 0; None if it does not."""
    named = os.environ.get(LEADER_VARIABLE)
    if not named:
        return None
    host, _, port = named.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise PacelineError(
            f"{LEADER_VARIABLE} is {named!r}, which names no host and port",
            fix="write HOST:PORT, with the first node's name or address",
        )
    return host, int(port)


def _await_listener(host: str, port: int) -> tuple[str, int]:
    """Wait until worker 0 listens, and return its address and port; its name may be new, too."""
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT_SECONDS
    while True:
        try:
            with socket.create_connection((host, port), timeout=_CONNECTING_SECONDS) as found:
                return str(found.getpeername()[0]), port
        except OSError as error:
            if time.monotonic() > deadline:
                raise RendezvousTimeout(
                    f"worker 0 did not listen at {host}:{port} within"
                    f" {RENDEZVOUS_TIMEOUT_SECONDS:.0f} s: {error}",
                    fix="check that the nodes reach that node, and that the port is open",
                ) from None
        time.sleep(_TRY_SECONDS)


def _announced(text: bytes, generation: int, secret: bytes) -> tuple[str, int]:
    """Return the address and port that worker 0 published; raise an error if they are forged."""
    where = json.loads(_read_signed(text, secret, _key(generation)))
    return str(where["address"]), int(where["port"])
