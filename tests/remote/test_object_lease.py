"""A run's lease in an object store: one holder a term, on stores with and without conditions."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec import get_filesystem_class

from data.s3_server import serving
from paceline.lease.lease import Lease, LeaseHeld
from paceline.lease.object_lease import lease_store_of
from paceline.lease.record import LeaseRecord, LocalHolder
from paceline.lease.store import LeaseStore
from paceline.remote.places import copy_of
from paceline.specs import PacelineError, Run
from paceline.specs.owned_files import write_owned


@pytest.fixture(params=["memory", "s3"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A store that refuses to replace an object, and an S3 server that does not."""
    if request.param == "memory":
        yield f"memory://{tmp_path.name}/run"
        return
    (tmp_path / "s3" / "bucket").mkdir(parents=True)
    with serving(tmp_path / "s3", written_to=True) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        get_filesystem_class("s3").clear_instance_cache()  # of the server before
        yield "s3://bucket/run"
    get_filesystem_class("s3").clear_instance_cache()


def machine(folder: Path, url: str) -> Run:
    folder.mkdir(mode=0o700)
    run = Run(folder)
    write_owned(run.url_file, url)
    return run


def holder(number: int) -> LocalHolder:
    return LocalHolder(host="node", machine="boot", pid=number, start_ticks=1)


def alive(record: LeaseRecord) -> PacelineError:
    return PacelineError(f"{record.holder} lives", fix="wait")


def test_one_of_many_gets_a_term(url: str, tmp_path: Path) -> None:
    run = machine(tmp_path / "run", url)
    won: list[LeaseStore] = []
    start = threading.Barrier(6)

    def race(number: int) -> None:
        store = lease_store_of(run)
        start.wait()
        if store.create(LeaseRecord.begin(1, holder(number))):
            won.append(store)

    racers = [threading.Thread(target=race, args=(number,)) for number in range(1, 7)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(won) == 1


def test_a_term_is_held_lost_and_released(url: str, tmp_path: Path) -> None:
    first, second = machine(tmp_path / "one", url), machine(tmp_path / "two", url)
    lease = Lease.take(lease_store_of(first), holder(1), alive)
    with pytest.raises(LeaseHeld, match="process 1 on node lives"):
        Lease.take(lease_store_of(second), holder(2), alive)
    lease.renew()
    assert lease_store_of(second).newest() == lease_store_of(first).newest()
    taken = Lease.take(lease_store_of(second), holder(2), lambda record: None)
    assert (lease.term, taken.term) == (1, 2)
    assert not lease.lost
    copy_of(first).pull_signals()  # as its mirror does
    assert lease.lost
    taken.release()
    assert Lease.take(lease_store_of(first), holder(3), alive).term == 3
