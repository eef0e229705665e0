"""Nobody without the job's secret can place a value, move one, or replay one."""

import pickle
import socket
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._C._distributed_c10d import HashStore, PrefixStore

from paceline.cluster.interfaces import loopback
from paceline.comm import rendezvous
from paceline.comm.signed_store import SignedStore
from paceline.comm.signing import ForgedValue, sign, verified
from paceline.membership.rendezvous import node_rendezvous
from ranks import RankFailed, run_ranks

SECRET = b"s" * 32


@given(key=st.text(), value=st.binary())
def test_what_is_signed_is_verified(key: str, value: bytes) -> None:
    signed = sign(SECRET, key, value) + value
    assert verified(SECRET, key, signed) == value
    with pytest.raises(ForgedValue):
        verified(b"other", key, signed)
    with pytest.raises(ForgedValue):
        verified(SECRET, key + "x", signed)


@given(garbage=st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(ForgedValue):
        verified(SECRET, "key", garbage)


def test_values_pass_and_forged_ones_do_not() -> None:
    inner = HashStore()
    store = SignedStore(inner, SECRET)
    prefixed = PrefixStore("generation-1", store)
    prefixed.set("address", "10.0.0.1")
    assert prefixed.get("address") == b"10.0.0.1"
    assert prefixed.add("counter", 2) == 2
    prefixed.wait(["address"], timedelta(seconds=1))
    inner.set("generation-1/address", pickle.dumps(print).decode("latin1"))
    with pytest.raises(ForgedValue, match="generation-1/address"):
        prefixed.get("address")


def test_a_value_of_another_generation_is_refused() -> None:
    inner = HashStore()
    store = SignedStore(inner, SECRET)
    store.set("generation-1/address", "10.0.0.1")
    inner.set("generation-2/address", inner.get("generation-1/address"))  # type: ignore[arg-type]
    with pytest.raises(ForgedValue):
        store.get("generation-2/address")


def sum_over_workers() -> float:
    from paceline.schedulers.task_placement import placement, run_folder
    from paceline.specs import Run
    from paceline.train.elastic.joined_groups import joined

    folder = run_folder()
    assert folder is not None
    with joined(Run(folder), placement(), torch.device("cpu"), None) as groups:
        return groups.sum(torch.tensor([float(groups.placement.rank + 1)])).item()


def test_workers_meet_and_sum(tmp_path: Path) -> None:
    assert run_ranks(sum_over_workers, 4, tmp_path) == [10.0] * 4


def with_another_secret() -> float:
    from paceline.schedulers.task_placement import placement, run_folder
    from paceline.specs import Run

    folder = run_folder()
    assert folder is not None
    if placement().rank == 1:
        path = Run(folder).secret_file
        own = path.with_name("other")
        own.write_text("00" * 32)
        Run.secret_file = property(lambda run: run.path / "other")  # type: ignore[assignment,method-assign]
    node_rendezvous.RENDEZVOUS_TIMEOUT_SECONDS = 2.0  # type: ignore[attr-defined]
    return sum_over_workers()


def test_a_worker_with_another_secret_does_not_get_in(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match=r"workers \[1\] did not arrive|cannot be reached"):
        run_ranks(with_another_secret, 2, tmp_path, seconds=20)


def test_the_listener_is_bound_to_one_interface() -> None:
    store = rendezvous.hosted_store(loopback())
    assert store.host == "127.0.0.1"
    assert _listening_addresses(store.port) == {"127.0.0.1"}


def test_a_store_whose_host_is_gone_is_not_waited_for() -> None:
    """Who waits in torch for ten seconds would be taken for stuck, and ended, after five."""
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        began = time.monotonic()
        with pytest.raises(RuntimeError):
            rendezvous.reached_store("127.0.0.1", nobody_listens.getsockname()[1], lambda: True)
        assert time.monotonic() - began < 4


def _listening_addresses(port: int) -> set[str]:
    import psutil

    return {
        connection.laddr.ip
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
