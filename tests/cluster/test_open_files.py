"""Limits of open files and connections, before a run meets them."""

import subprocess
import sys

import pytest

from paceline.cluster import open_files
from paceline.cluster.open_files import MOST_BY_GLOO, check_connections, needed_files
from paceline.specs import PacelineError

SCRIPT = """
import resource
from paceline.cluster.open_files import allow_most_files
allow_most_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_worker_may_open_as_many_files_as_the_system_allows() -> None:
    limited = f'ulimit -S -n 64; exec "{sys.executable}" -c "$0"'
    done = subprocess.run(
        ["bash", "-c", limited, SCRIPT], capture_output=True, text=True, check=True
    )
    soft, most = done.stdout.split()
    assert soft == most != "64"


def test_more_workers_than_gloo_can_connect_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "most_files", lambda: 1_000_000)
    check_connections(MOST_BY_GLOO, by_gloo=True)
    with pytest.raises(
        PacelineError, match=r"513 workers communicate by Gloo.* allows 512"
    ) as info:
        check_connections(MOST_BY_GLOO + 1, by_gloo=True)
    assert "use accelerators" in info.value.fix
    check_connections(100_000, by_gloo=False)


@pytest.mark.parametrize("by_gloo", [False, True])
def test_a_limit_that_is_too_low_is_named_with_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, *, by_gloo: bool
) -> None:
    monkeypatch.setattr(open_files, "most_files", lambda: needed_files(200, by_gloo=by_gloo))
    check_connections(200, by_gloo=by_gloo)
    needed = needed_files(201, by_gloo=by_gloo)
    with pytest.raises(PacelineError, match=rf"a worker of 201 needs up to {needed:,} open files"):
        check_connections(201, by_gloo=by_gloo)


SMALL = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
from paceline.doctor import _files
found = _files()
print(found.state, found.text, found.fix, sep="|")
"""


def test_the_doctor_names_a_limit_that_is_too_low() -> None:
    done = subprocess.run([sys.executable, "-c", SMALL], capture_output=True, text=True, check=True)
    level, text, fix = done.stdout.strip().split("|")
    assert (level, text) == (
        "note",
        "a process may open 200: too few for any run of several workers",
    )
    assert "LimitNOFILE" in fix
