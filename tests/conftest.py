"""Which tests can run here, and a watch over what tests leave behind."""

import ctypes
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import psutil
import pytest
from fsspec import get_filesystem_class
from hypothesis import HealthCheck, settings

import device_choice
from data.s3_server import S3Server, serving
from paceline.testbed import requirements

_ANY_TIME = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How long an example takes says nothing on a machine that is shared."""
settings.register_profile("short", _ANY_TIME)
settings.register_profile("long", _ANY_TIME, max_examples=5_000)
settings.load_profile("short")

_OTHERS = ("PYTEST_", "TORCHINDUCTOR_")
"""Variables that pytest and torch set by themselves."""

_KEPT = ("pymp-", "torchinductor_", "paceline-installed-")
"""Temporary folders of a session: the forkserver's, torch's compiled code, outside packages."""

_PR_GET_CHILD_SUBREAPER = 37
_ENDS_WITHIN_SECONDS = 10.0
"""A job's script may still be at its last line when its run's result is already there."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tests that train use another kind of device."""
    parser.addoption(
        "--device",
        choices=device_choice.KINDS,
        default="cpu",
        help="kind of device for tests that train; the others are skipped (default: cpu)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Sessions beside each other have testbeds of their own, by the same names."""
    device_choice.chosen = config.getoption("--device")
    # What a failed test wrote stays where pytest keeps it.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ["TMPDIR"] = tempfile.tempdir = _folder_of_session()
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ["XDG_RUNTIME_DIR"] = _folder_of_session()


def _folder_of_session() -> str:
    """A folder with a short name, for sockets in it."""
    folder = tempfile.mkdtemp(prefix="pl-", dir=os.environ["PYTEST_DEBUG_TEMPROOT"])
    # multiprocessing removes its own folder in this one at the process's end, so this comes later.
    Finalize(None, shutil.rmtree, args=(folder,), exitpriority=-1000)
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Retry only tests that measure time: whoever shares the machine may take it for a while."""
    for item in items:
        if item.get_closest_marker("alone"):
            item.add_marker(pytest.mark.flaky(reruns=5, reruns_delay=5))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List what was retried."""
    retried = _retried(terminalreporter)
    if retried:
        terminalreporter.section("retried")
        for test in retried:
            terminalreporter.write_line(test)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the nightly run for what was retried."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and _retried(reporter) and os.environ.get("PACELINE_NIGHTLY"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _retried(reporter: Any) -> list[str]:
    return sorted({report.nodeid for report in reporter.stats.get("rerun", [])})


@pytest.fixture
def device_kind() -> str:
    """The kind of device on which the tests train."""
    return device_choice.chosen


@pytest.fixture(scope="module")
def bucket_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with one bucket, for the tests of a file."""
    folder = tmp_path_factory.mktemp("s3")
    (folder / "bucket").mkdir()
    with serving(folder, written_to=True) as running:
        yield running


@pytest.fixture
def bucket(
    bucket_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """A URL of the test's own, reached by what users set in their environment."""
    for name, value in bucket_server.environment.items():
        monkeypatch.setenv(name, value)
    get_filesystem_class("s3").clear_instance_cache()  # of the server before
    yield f"s3://bucket/{tmp_path.name}"
    get_filesystem_class("s3").clear_instance_cache()


def _why_not(item: pytest.Item) -> str | None:
    if marker := item.get_closest_marker("slurm"):
        lacking = requirements.missing(**marker.kwargs)
        if lacking:
            return "; ".join(f"{each.what} ({each.fix})" for each in lacking)
    if item.get_closest_marker("root") and os.geteuid() != 0:
        return "needs root, to make an ordinary user"
    if item.get_closest_marker("browser") and shutil.which("chromium") is None:
        return "needs chromium on PATH"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if other := device_choice.why_skipped(item):
        pytest.skip(other)
    why = _why_not(item)
    if why and os.environ.get("PACELINE_TEST_ALL"):
        pytest.fail(why, pytrace=False)
    if why:
        pytest.skip(why)


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Fail a test that leaves a process, a thread, a file or a changed environment behind."""
    environment = dict(os.environ)
    temporary = _temporary_files()
    threads = set(threading.enumerate())
    processes = _children()
    yield
    new = [process for process in _children() - processes if not _is_test_server(process)]
    _, left = psutil.wait_procs(new, timeout=_ENDS_WITHIN_SECONDS)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert not left, f"left behind: {left}"
    new_threads = {
        thread for thread in threading.enumerate() if thread.is_alive() and not thread.daemon
    } - threads
    assert not new_threads, f"threads left behind: {new_threads}"
    new_files = _temporary_files() - temporary
    assert not new_files, f"temporary files left behind: {new_files}"
    changed = {
        name
        for name in os.environ.keys() | environment.keys()
        if os.environ.get(name) != environment.get(name) and not name.startswith(_OTHERS)
    }
    assert not changed, f"environment changed: {changed}"
    assert not _adopts_orphans(), "a later test's orphans would be taken for its children"


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _temporary_files() -> set[str]:
    names = {path.name for path in Path(tempfile.gettempdir()).iterdir()}
    return {name for name in names if not name.startswith(_KEPT)}


def _adopts_orphans() -> bool:
    adopts = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts))
    return bool(adopts)


def _is_test_server(process: psutil.Process) -> bool:
    """The forkserver and its tracker stay for the whole session, to be quick."""
    try:
        command = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return True
    return "multiprocessing.forkserver" in command or "resource_tracker" in command
