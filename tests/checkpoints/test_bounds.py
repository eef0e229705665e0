"""No more is read of a checkpoint than it promises, and nothing that others can write."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints.relay import Relay, relaying
from checkpoints.saved import Checkpoints
from command import BREAKING, paceline, paceline_json, write_training
from data.s3_server import S3Server, serving
from paceline.checkpoints import saver
from paceline.checkpoints.bucket import Bucket
from paceline.checkpoints.folder import Folder
from paceline.checkpoints.storage import Damaged
from paceline.specs import PacelineError
from paceline.specs.owned_files import NotOwned

NEWEST = "step-0000000020"
PART = "model-00000-000.safetensors"
HUGE_BYTES = 3 << 30
HUGE_OBJECT_BYTES = (1 << 30) + 1
"""More than any manifest; the server reads all of it to answer a question about its size."""
MEGABYTE = 1 << 20

LOADED = """
import json, sys
from pathlib import Path
from checkpoints.saved import Checkpoints
from paceline.checkpoints.storage_place import opened

checkpoints = Checkpoints(Path(), storage=opened(sys.argv[1]))
found = checkpoints.newest()
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([found[0], checkpoints.told.flaws[20], int(peak) << 10]))
"""
"""Load the newest good checkpoint, in a process of its own: its step, what is wrong with the one
of step 20, and the most memory that the process had."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serving(tmp_path_factory.mktemp("s3"), hashed=False) as running:
        yield running


@pytest.fixture
def relay(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    with relaying(int(server.url.rpartition(":")[2])) as relay:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", relay.url)
        yield relay


def two(folder: Path) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    checkpoints.save(10)
    checkpoints.save(20)
    return checkpoints


def loaded(place: str | Path) -> tuple[int, str, int]:
    tests = str(Path(__file__).parent.parent)
    search = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(place)],
        env=os.environ | {"PYTHONPATH": search},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    step, flaw, peak_bytes = json.loads(done.stdout)
    return step, flaw, peak_bytes


@pytest.mark.parametrize("name", [PART, "manifest.json"])
def test_a_huge_object_is_not_fetched(name: str, server: S3Server, relay: Relay) -> None:
    bucket = f"huge-{name.replace('.', '-')}"
    two(server.folder / bucket / "run")
    os.truncate(server.folder / bucket / "run" / NEWEST / name, HUGE_OBJECT_BYTES)  # sparse
    step, flaw, peak_bytes = loaded(f"s3://{bucket}/run")
    assert 5_000 < relay.sent_bytes < MEGABYTE
    assert peak_bytes < 1000 * MEGABYTE
    assert step == 10
    assert f"{name} has {HUGE_OBJECT_BYTES} bytes: more than the" in flaw


@pytest.mark.parametrize("name", ["manifest.json", "manifest.json.sha256"])
def test_a_huge_file_is_not_read(name: str, tmp_path: Path) -> None:
    two(tmp_path / "run")
    os.truncate(tmp_path / "run" / NEWEST / name, HUGE_BYTES)
    step, flaw, peak_bytes = loaded(tmp_path / "run")
    assert peak_bytes < 1000 * MEGABYTE
    assert step == 10
    assert f"{name} has {HUGE_BYTES} bytes: more than the" in flaw


def test_an_object_that_grows_is_read_as_far_as_it_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two(tmp_path)
    path = tmp_path / NEWEST / PART
    promised = path.stat().st_size
    bucket = Bucket(f"local://{tmp_path}")
    look = bucket._files.info

    def info_then_grow(*arguments: object, **options: object) -> object:
        found = look(*arguments, **options)
        os.truncate(path, HUGE_BYTES)
        return found

    monkeypatch.setattr(bucket._files, "info", info_then_grow)
    with bucket.reading(20, PART, promised) as copy:
        assert copy.stat().st_size == promised


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_what_another_worker_wrote_into_a_draft(kind: str, tmp_path: Path) -> None:
    storage = Folder(tmp_path) if kind == "folder" else Bucket(f"local://{tmp_path}")
    draft = storage.draft(20, 0)
    name = "handed-in-0-0-00000/00001.json"
    for place in (NEWEST, f".draft-{NEWEST}-0"):  # a bucket has no folders
        (tmp_path / place / name).parent.mkdir(parents=True, exist_ok=True)
    draft.write(name, [b"{}"])
    assert draft.names("handed-in-0-0-00000") == {"00001.json"}
    assert draft.read(name, 2) == b"{}"
    (path,) = tmp_path.glob(f"*/{name}")
    os.truncate(path, HUGE_BYTES)
    with pytest.raises((PacelineError, Damaged), match="more than"):
        draft.read(name, MEGABYTE)


def test_a_manifest_that_nobody_would_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver, "MOST_MANIFEST_BYTES", 100)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10)
    assert "and no worker reads more than 100" in checkpoints.told.flaws[10]
    assert checkpoints.steps() == []


@pytest.mark.parametrize("name", [PART, "manifest.json", "manifest.json.sha256"])
@pytest.mark.parametrize("mode", [0o660, 0o602])
def test_a_file_that_others_can_write_is_refused(name: str, mode: int, tmp_path: Path) -> None:
    checkpoints = two(tmp_path)
    (tmp_path / NEWEST / name).chmod(mode)
    with pytest.raises(NotOwned, match=f"can write .*{name} .mode {mode:04o}.") as refused:
        checkpoints.newest()
    assert f"chmod -R go-w {tmp_path}" in str(refused.value)
    assert checkpoints.steps() == [10, 20]  # nothing is set aside


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_is_refused(tmp_path: Path) -> None:
    checkpoints = two(tmp_path)
    os.chown(tmp_path / NEWEST / PART, 65534, -1)
    with pytest.raises(NotOwned, match=f"{PART} belongs to nobody"):
        checkpoints.newest()


def test_an_old_checkpoint_that_others_can_write_does_not_stop_saving(tmp_path: Path) -> None:
    two(tmp_path)
    (tmp_path / "step-0000000010" / "manifest.json").chmod(0o666)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(30)
    assert checkpoints.told.costs.keys() == {30}


@pytest.mark.nightly
@pytest.mark.slow
def test_resume_refuses_checkpoints_elsewhere_that_others_can_write(tmp_path: Path) -> None:
    write_training(tmp_path, BREAKING)
    words = ("run", "train.py", "-n", "2", "--save-every", "5", "--checkpoints", "elsewhere")
    paceline(*words, folder=tmp_path, expect=1)
    (run,) = (tmp_path / "runs").iterdir()
    (tmp_path / "mended").touch()
    (part, *_) = (tmp_path / "elsewhere" / run.name).glob("step-*/*.safetensors")
    part.chmod(0o664)
    said = " ".join(paceline("resume", run, folder=tmp_path, expect=2).stderr.split())
    assert f"other users can write {part} (mode 0664)" in said
    assert f"chmod -R go-w {tmp_path / 'elsewhere' / run.name}" in said
    subprocess.run(["chmod", "-R", "go-w", tmp_path / "elsewhere" / run.name], check=True)
    assert paceline_json("resume", run, folder=tmp_path)["checkpoints"]["last_step"] == 20
