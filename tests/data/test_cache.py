"""The cache between processes: fetched once, within its limit, whole or not at all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.data.cache import Cache
from paceline.specs import PacelineError

pytestmark = pytest.mark.alone

PROCESS = """
import sys, time
from pathlib import Path
from paceline.data.cache import Cache

folder, limit, size, pause, *names = sys.argv[1:]
cache = Cache(Path(folder, "cache"), int(limit))

def write(path):
    with Path(folder, "fetched").open("a") as log:
        log.write(name + "\\n")
    with path.open("wb") as file:
        for _ in range(10):
            file.write(name.encode() * (int(size) // 10))
            file.flush()
            time.sleep(float(pause) / 10)

for name in names:
    with cache.open(name, int(size), write) as file:
        content = file.read()
    assert content == name.encode() * int(size), (name, len(content))
    used = [path for path in cache.folder.iterdir() if path.suffix != ".part"]
    total = 0
    for path in used:
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            pass
    assert total <= int(limit), total
"""


def start(
    folder: Path, names: str, *, limit: int = 10**6, size: int = 1000, pause: float = 0.0
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, folder, str(limit), str(size), str(pause), *names],
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: "subprocess.Popen[str]") -> None:
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


def fetched(folder: Path) -> list[str]:
    return (folder / "fetched").read_text().split()


def content(folder: Path) -> list[Path]:
    return [path for path in (folder / "cache").iterdir() if path.name != "lock"]


def test_processes_that_race_fetch_each_file_once(tmp_path: Path) -> None:
    processes = [start(tmp_path, "abcdefgh", pause=0.05) for _ in range(4)]
    for process in processes:
        end(process)
    assert sorted(fetched(tmp_path)) == list("abcdefgh")
    assert len(content(tmp_path)) == 8


def test_processes_that_race_for_room_stay_within_the_limit(tmp_path: Path) -> None:
    names = ["abcdefgh", "hgfedcba", "cdefghab", "bahgfedc"]
    processes = [start(tmp_path, each * 3, limit=2500, pause=0.01) for each in names]
    for process in processes:
        end(process)
    assert sum(path.stat().st_size for path in content(tmp_path)) <= 2500


def test_a_process_killed_while_fetching(tmp_path: Path) -> None:
    killed = start(tmp_path, "a", pause=60)
    deadline = time.monotonic() + 30
    while not any(path.stat().st_size for path in (tmp_path / "cache").glob("*.part")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    waiting = start(tmp_path, "a")
    time.sleep(0.3)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    end(waiting)
    assert fetched(tmp_path) == ["a", "a"]
    assert [path.stat().st_size for path in content(tmp_path)] == [1000]


def test_what_a_killed_process_left_takes_no_room(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=1000)
    abandoned = cache.folder / "abandoned.900.part"
    abandoned.write_bytes(b"x" * 500)
    cache.bring("b", 1000, lambda path: path.write_bytes(b"y" * 1000))
    assert not abandoned.exists()


def filled(path: Path) -> None:
    path.write_bytes(b"x" * 400)


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=1000)
    for age, name in ((30, "old"), (20, "older in use")):
        cache.bring(name, 400, filled)
        os.utime(cache._path(name), (time.time() - age,) * 2)
    with cache.open("old", 400, filled):  # now it is the younger of the two
        pass
    with cache.open("older in use", 400, filled) as held:
        os.utime(held.fileno(), (time.time() - 20,) * 2)
        cache.bring("new", 400, filled)
        assert cache._path("old").exists()
        assert not cache._path("older in use").exists()
        assert held.read() == b"x" * 400  # who has it open can read on


def test_a_file_that_grew_evicts_others(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=1000)
    cache.bring("old", 400, filled)
    cache.bring("grown", 10, lambda path: path.write_bytes(b"x" * 700))
    assert not cache._path("old").exists()
    assert cache._path("grown").exists()


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise ConnectionResetError

    cache = Cache(tmp_path)
    with pytest.raises(ConnectionResetError):
        cache.bring("a", 8, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match=r"disk of the cache .* is full, before its limit"):
        Cache(tmp_path).bring("a", 8, lambda path: Path("/dev/full").write_bytes(b"12345678"))
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_who_does_not_wait_leaves_it_to_the_other(tmp_path: Path) -> None:
    other = start(tmp_path, "a", pause=2)
    cache = Cache(tmp_path / "cache", 10**6)
    while not list((tmp_path / "cache").glob("*.part")):
        time.sleep(0.02)
    begin = time.monotonic()
    cache.bring("a", 1000, filled, wait=False)
    assert time.monotonic() - begin < 1
    end(other)
    assert fetched(tmp_path) == ["a"]


def test_one_file_over_the_limit(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=1000)
    with pytest.raises(PacelineError, match=r"2,000 bytes, but the cache .* is limited to 1,000"):
        cache.bring("a", 2000, filled)


def test_a_window_over_the_limit(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=1000)
    cache.check_room([300, 300, 300, 400], at_once=3)
    with pytest.raises(PacelineError, match=r"4 shards are in use .* 1,300 bytes") as error:
        cache.check_room([300, 300, 300, 400], at_once=8)
    assert "Cache(limit_bytes=1300)" in str(error.value)
