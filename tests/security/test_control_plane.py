"""The attacks that work on the control planes of torch and torchft, tried there and on ours."""

import base64
import pickle
import socket
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch._C._distributed_c10d import TCPStore
from torch.distributed import distributed_c10d
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    RendezvousSettings,
    RendezvousTimeout,
    _BackendRendezvousStateHolder,
)

from paceline.cluster.interfaces import loopback
from paceline.comm.rendezvous import Rendezvous, hosted_store
from paceline.comm.signed_store import SignedStore
from paceline.comm.signing import ForgedValue
from paceline.membership.rendezvous.address_files import secret_of
from ranks import new_run
from security.payload import Payload

GARBAGE = (b"", b"\x00" * 4096, b"\xff" * 4096, b"GET / HTTP/1.1\r\n\r\n", b"\x03\xff\xff\xff\x7f")


@pytest.fixture
def payload(tmp_path: Path) -> Payload:
    return Payload(tmp_path)


@pytest.fixture
def found_rendezvous(tmp_path: Path) -> Rendezvous:
    secret = secret_of(new_run(tmp_path, workers=2))
    return Rendezvous(hosted_store(loopback()), secret, loopback())


@pytest.fixture
def stranger(found_rendezvous: Rendezvous) -> TCPStore:
    """Somebody who can reach the port, and knows no secret."""
    return TCPStore(
        found_rendezvous.interface.address,
        found_rendezvous.store.port,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=5),
    )


def ours(found_rendezvous: Rendezvous) -> SignedStore:
    return SignedStore(found_rendezvous.store, found_rendezvous.secret)


def test_torchruns_rendezvous_runs_what_a_stranger_writes(
    found_rendezvous: Rendezvous, stranger: TCPStore, payload: Payload
) -> None:
    """The control: the same stranger, the same store, torch's own reader."""
    stranger.set("torch.rendezvous.job", base64.b64encode(payload.pickled).decode())
    settings = RendezvousSettings(
        "job", 1, 1, RendezvousTimeout(), timedelta(seconds=5), keep_alive_max_attempt=1
    )
    holder = _BackendRendezvousStateHolder(
        C10dRendezvousBackend(found_rendezvous.store, "job"), settings
    )
    with suppress(Exception):
        holder.sync()
    assert payload.has_run()


def test_a_pickle_in_our_store_runs_nothing(
    found_rendezvous: Rendezvous, stranger: TCPStore, payload: Payload
) -> None:
    stranger.set("generation-3/0", payload.pickled)  # type: ignore[arg-type]
    with pytest.raises(ForgedValue, match="generation-3/0"):
        ours(found_rendezvous).get("generation-3/0")
    assert not payload.has_run()


def test_an_address_that_a_stranger_writes_is_refused(
    found_rendezvous: Rendezvous, stranger: TCPStore
) -> None:
    """Gloo would connect to it and send the gradients there."""
    store = ours(found_rendezvous)
    store.set("generation-3/0", "127.0.0.1:1")
    assert stranger.get("generation-3/0").endswith(b"127.0.0.1:1")  # nothing is hidden
    for forged in (b"127.0.0.1:2", b"\x00" * 32 + b"127.0.0.1:2", b""):
        stranger.set("generation-3/0", forged)  # type: ignore[arg-type]
        with pytest.raises(ForgedValue):
            store.get("generation-3/0")


def test_what_was_signed_for_another_key_or_generation_is_refused(
    found_rendezvous: Rendezvous, stranger: TCPStore
) -> None:
    ours(found_rendezvous).set("generation-2/0", "127.0.0.1:1")
    signed = stranger.get("generation-2/0")
    for placement in ("generation-3/0", "generation-2/1"):
        stranger.set(placement, signed)  # type: ignore[arg-type]
        with pytest.raises(ForgedValue):
            ours(found_rendezvous).get(placement)
    assert ours(found_rendezvous).get("generation-2/0") == b"127.0.0.1:1"


def test_the_store_survives_garbage(found_rendezvous: Rendezvous) -> None:
    address = (found_rendezvous.interface.address, found_rendezvous.store.port)
    for number in range(60):
        with socket.create_connection(address, timeout=5) as connection:
            connection.sendall(GARBAGE[number % len(GARBAGE)])
    store = ours(found_rendezvous)
    store.set("generation-3/0", "still there")
    assert store.get("generation-3/0") == b"still there"


def test_a_stranger_can_only_make_a_start_wait(
    found_rendezvous: Rendezvous, stranger: TCPStore
) -> None:
    """What is left, and stands in the docs: keys can be deleted, which ends a start by its
    timeout."""
    store = ours(found_rendezvous)
    store.set("generation-3/0", "127.0.0.1:1")
    stranger.wait(["generation-3/0"], timedelta(seconds=5))  # another connection: it may be late
    assert stranger.delete_key("generation-3/0")
    with pytest.raises(torch.distributed.DistStoreError):
        store.wait(["generation-3/0"], timedelta(seconds=0.1))


def test_torchs_object_collectives_run_what_another_rank_sends(payload: Payload) -> None:
    """The control of `test_workers_unpickle_nothing`: what `all_gather_object` does with bytes."""
    sent = torch.frombuffer(bytearray(payload.pickled), dtype=torch.uint8)
    with suppress(pickle.UnpicklingError):
        distributed_c10d._tensor_to_object(sent, sent.numel(), None)  # type: ignore[no-untyped-call]
    assert payload.has_run()
