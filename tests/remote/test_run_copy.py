"""A run's copy and its store: what one machine writes, the others read, and nothing else."""

from pathlib import Path

import pytest

from paceline.remote import run_copy
from paceline.remote.object_store import ObjectStore
from paceline.remote.run_copy import RunCopy
from paceline.specs import PacelineError
from paceline.specs.owned_files import write_owned


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """A store in this process's memory, which is fsspec's own."""
    return ObjectStore(f"memory://{tmp_path.name}/run")


class Machine:
    """A machine with a copy of the run."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        self.folder = folder
        for each in ("", "events", "rendezvous", "ledger"):
            (folder / each).mkdir(mode=0o700, exist_ok=True)
        self.copy = RunCopy(folder, store)

    def append(self, file: str, text: str) -> None:
        with (self.folder / file).open("a") as opened:
            opened.write(text)

    def read(self, file: str) -> str:
        return (self.folder / file).read_text()

    def has(self, file: str) -> bool:
        return (self.folder / file).exists()


@pytest.fixture
def one(tmp_path: Path, store: ObjectStore) -> Machine:
    return Machine(tmp_path / "one", store)


@pytest.fixture
def two(tmp_path: Path, store: ObjectStore) -> Machine:
    return Machine(tmp_path / "two", store)


def test_growing_files_in_parts(
    one: Machine, two: Machine, monkeypatch: pytest.MonkeyPatch, store: ObjectStore
) -> None:
    monkeypatch.setattr(run_copy, "PART_BYTES", 10)
    written = ""
    for number in range(30):
        one.append("events/one.jsonl", f"{number}\n")
        written += f"{number}\n"
        one.append("events/one.jsonl", "half a")  # of a line that is being written
        one.copy.sync()
        two.copy.pull()
        read = two.read("events/one.jsonl")  # a full part need not end with a line
        assert read.startswith(written)
        assert f"{written}half a".startswith(read)
        one.append("events/one.jsonl", " line\n")
        written += "half a line\n"
    one.copy.sync(last=True)
    parts = sorted(store.list("events/one.jsonl").items())
    assert [name for name, _ in parts] == [
        f"events/one.jsonl/{number:08d}" for number in range(len(parts))
    ]
    assert {stored.size for _, stored in parts[:-1]} == {10}
    assert b"".join(store.read(name) for name, _ in parts).decode() == written


def test_two_machines_append_after_each_other(
    one: Machine, two: Machine, tmp_path: Path, store: ObjectStore
) -> None:
    one.append("events/n1.jsonl", "first\n")
    one.copy.sync()
    two.copy.pull()
    two.append("events/n1.jsonl", "second\n")
    two.append("events/n2.jsonl", "other\n")
    two.copy.sync(whole=True)
    two.append("events/n1.jsonl", "third\n")
    two.copy.sync(whole=True)
    reader = Machine(tmp_path / "reader", store)
    reader.copy.pull()
    assert reader.read("events/n1.jsonl") == "first\nsecond\nthird\n"
    assert reader.read("events/n2.jsonl") == "other\n"


def test_a_file_that_is_begun_anew(
    one: Machine, two: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_copy, "PART_BYTES", 10)
    one.append("ledger/a.jsonl", "0123456789\n0123456789\n")
    one.copy.sync()
    two.copy.pull()
    (one.folder / "ledger/a.jsonl").unlink()
    one.append("ledger/a.jsonl", "new\n")
    one.copy.sync()
    two.copy.pull()
    assert two.read("ledger/a.jsonl") == "new\n"


def test_signals_come_and_go(one: Machine, two: Machine) -> None:
    write_owned(one.folder / "outcome", "0\n")
    write_owned(one.folder / "rendezvous/leader-1.json", "n1")
    one.copy.sync()
    two.copy.sync()
    assert two.read("outcome") == "0\n"
    assert two.read("rendezvous/leader-1.json") == "n1"
    (two.folder / "outcome").unlink()
    two.copy.sync()
    one.copy.sync()
    assert not one.has("outcome")
    write_owned(two.folder / "rendezvous/leader-1.json", "n2")
    two.copy.sync()
    one.copy.sync()
    assert one.read("rendezvous/leader-1.json") == "n2"


def test_what_stays_on_its_machine(one: Machine, two: Machine, store: ObjectStore) -> None:
    for name in ("secret", "prometheus-token", ".plan.toml-draft", "plan.toml"):
        write_owned(one.folder / name, name)
    (one.folder / "link").symlink_to(one.folder / "secret")
    (one.folder / "checkpoints").mkdir()
    write_owned(one.folder / "checkpoints/model", "large")
    one.copy.sync()
    two.copy.pull()
    files, folders = store.top()
    assert set(files) == {"plan.toml"}
    assert not folders
    assert two.read("plan.toml") == "plan.toml"
    assert (two.folder / "plan.toml").stat().st_mode & 0o777 == 0o600


def test_an_object_outside_the_folder(store: ObjectStore, two: Machine, tmp_path: Path) -> None:
    store.write("good", b"1")
    copy = RunCopy(two.folder, store)
    with pytest.raises(PacelineError, match="outside the run's folder"):
        copy._take({"../stolen": store.top()[0]["good"]})
    assert not (tmp_path / "stolen").exists()
