"""A stranger that reads the store and takes a worker's place in Gloo."""

import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from command import paceline
from paceline.cluster.interfaces import Interface
from paceline.comm import mesh_proof, rendezvous
from paceline.comm.group_errors import PeerLost
from paceline.comm.mesh_proof import Stranger
from paceline.comm.torch_internals import TCPStore
from paceline.report import RunReader
from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Layout, Run
from paceline.train.elastic import joined_groups
from paceline.train.elastic.joined_groups import joined
from ranks import run_ranks
from testbeds.boxes import wait_until

_TRIES = 16
"""Gloo lets the worker with the lower port listen, and only a listener can be taken in: each try
succeeds with a chance of one half."""


def take_place_of_worker_1(folder: Path, generation: int) -> socket.socket:
    """Connect to worker 0 of a generation as worker 1 would, knowing what anybody can read."""
    announced = folder / f"store-{generation}"
    wait_until(announced.exists, "worker 0")
    address, store_port = announced.read_text().split()
    store = TCPStore(address, int(store_port), is_master=False, wait_for_workers=False)
    published = store.get(f"generation-{generation}/0//cpu//0/0")
    at = published.index(socket.inet_aton(address))  # a sockaddr: family, port, address
    port = struct.unpack(">H", published[at - 2 : at])[0]
    stranger = socket.create_connection((address, port))
    stranger.sendall(struct.pack("<q", 1))  # the number of worker 0's pair with worker 1
    return stranger


def _attack(folder: Path, generation: int, behavior: str) -> None:
    with take_place_of_worker_1(folder, generation) as stranger:
        host, port = stranger.getsockname()
        draft = folder / f"draft-{generation}"
        draft.write_text(f"{host}:{port}")
        draft.rename(folder / f"stranger-{generation}")
        if behavior == "talks":
            stranger.sendall(bytes(4096))
        # Until both have an answer: to the other, one that leaves is no stranger but a lost peer.
        for worker in (0, 1):
            wait_until((folder / f"joined-{generation}-{worker}").exists, f"worker {worker}")


def _let_a_stranger_come_first(folder: Path, generation: int) -> None:
    """Let worker 0 tell where its store is, which anybody on the network can read, and worker 1
    come to it after the stranger."""

    def hosted(interface: Interface, port: int | None = None) -> TCPStore:
        store = rendezvous.hosted_store(interface, port)
        draft = folder / "draft-store"
        draft.write_text(f"{store.host} {store.port}")
        draft.rename(folder / f"store-{generation}")
        return store

    def reached(
        address: str, port: int, given_up: Callable[[], bool], seconds: float = 10.0
    ) -> TCPStore:
        wait_until((folder / f"stranger-{generation}").exists, "a stranger")
        return rendezvous.reached_store(address, port, given_up, seconds)

    joined_groups.hosted_store = hosted  # type: ignore[attr-defined]
    joined_groups.reached_store = reached  # type: ignore[attr-defined]


def _two_workers_and_a_stranger(behavior: str) -> tuple[str, str]:
    """Join until a stranger is in; return the error, and the stranger's address."""
    folder = run_folder()
    assert folder is not None
    mesh_proof.PROOF_SECONDS = 1.0
    for generation in range(_TRIES):
        here = replace(placement(), generation=generation, workers=2)
        came = folder / f"stranger-{generation}"
        if here.rank == 2:
            _attack(folder, generation, behavior)
            if (folder / "over").exists():
                break
            continue
        _let_a_stranger_come_first(folder, generation)
        try:
            with joined(Run.open(folder), here, torch.device("cpu"), None) as groups:
                groups.sum(torch.ones(1))
        except PeerLost as error:
            (folder / "over").touch()
            (folder / f"named-{here.rank}").touch()
            wait_until((folder / "named-1").exists, "worker 1")  # worker 0 has the store
            return str(error), came.read_text()
        finally:
            (folder / f"joined-{generation}-{here.rank}").touch()
    return "", ""


@pytest.mark.parametrize("behavior", ["waits", "talks"])
def test_a_stranger_in_a_workers_place_is_named(tmp_path: Path, behavior: str) -> None:
    found = run_ranks(_two_workers_and_a_stranger, 3, tmp_path, behavior)
    error, address = found[0]
    assert f"a process without the run's secret in a worker's place ({address})" in error
    assert found[1][0], "worker 1 has nobody to prove itself to"


def _joined_with_own_secret() -> str:
    """Join; worker 1 has every address, but another secret."""
    folder = run_folder()
    assert folder is not None
    here = placement()
    if here.rank == 1:
        mesh_proof.hmac = _OtherSecret()  # type: ignore[attr-defined,assignment]
    try:
        with joined(Run.open(folder), here, torch.device("cpu"), None):
            return "joined"
    except Stranger as error:
        return str(error)


class _OtherSecret:
    """The module hmac with another secret."""

    def digest(self, _: bytes, message: bytes, how: str) -> bytes:
        import hmac

        return hmac.digest(os.urandom(32), message, how)

    def compare_digest(self, one: bytes, other: bytes) -> bool:
        return len(one) == len(other)


def test_a_process_that_speaks_gloo_but_lacks_the_secret_is_refused(tmp_path: Path) -> None:
    honest, _ = run_ranks(_joined_with_own_secret, 2, tmp_path)
    assert "gives a wrong answer" in honest


def _joined_late() -> str:
    """Create a mesh; worker 1 comes much later than a proof may take."""
    folder = run_folder()
    assert folder is not None
    mesh_proof.PROOF_SECONDS = 0.5
    here = placement()
    try:
        with joined(Run.open(folder), here, torch.device("cpu"), None) as groups:
            time.sleep(1.5 * here.rank)
            groups.mesh(Layout(shards=2))
            return "joined"
    except PeerLost as error:
        return str(error)


def test_a_worker_that_builds_its_model_longer_is_no_stranger(tmp_path: Path) -> None:
    """Failed before: "a worker does not answer within 20 s", with 1 GB of weights."""
    assert run_ranks(_joined_late, 2, tmp_path) == ["joined", "joined"]


TRAIN = """
import os, secrets
from pathlib import Path
import torch
from torch.utils.data import TensorDataset
import paceline
from paceline.comm.mesh_proof import MeshProof

once = Path("stranger")
if os.environ["PACELINE_RANK"] == "1" and not once.exists():
    answer = MeshProof._answer

    def forged(self, group, rank, nonces):
        if self._placement.generation == 0:
            once.touch()
            return secrets.token_bytes(32)
        return answer(self, group, rank, nonces)

    MeshProof._answer = forged


def training():
    data = TensorDataset(torch.randn(40, 3), torch.randn(40, 1))
    return paceline.Training(
        model=lambda: torch.nn.Linear(3, 1),
        loss=torch.nn.functional.mse_loss,
        data=data,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        batch=8,
        steps=5,
    )
"""


@pytest.mark.timeout(90)
def test_a_run_continues_in_a_new_generation_after_a_stranger(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    paceline("run", "train.py", "-n", "2", "--quiet", folder=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    run = Run.open(folder)
    assert RunReader(run).refresh().regroups
    logs = "".join(each.read_text() for each in run.logs.iterdir())
    assert "a process without the run's secret in a worker's place" in logs
    assert (tmp_path / "stranger").exists()
