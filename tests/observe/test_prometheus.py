"""The endpoint that Prometheus scrapes: one address, its token, the newest figures."""

import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from command import EXAMPLES, PACELINE, paceline, paceline_json, write_training
from paceline.observe.audience import Audience
from paceline.report import RunReader
from paceline.specs import Run
from report.folders import empty_run, realistic_run, say, started, steps

pytestmark = pytest.mark.slow

ANY_PORT = "prometheus:127.0.0.1:0"


@contextmanager
def endpoint(run: Run, words: str = ANY_PORT) -> Iterator[tuple[RunReader, str]]:
    said: list[str] = []
    audience = Audience(run, [words], said.append)
    try:
        (line,) = said
        yield RunReader(run, audience.forward), line.split()[1].rstrip(",")
    finally:
        audience.close()


def scrape(url: str, token: str | None) -> dict[str, float]:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {sample.name: sample.value for family in families for sample in family.samples}


def test_the_newest_figures(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    with endpoint(run) as (reader, url):
        token = run.metrics_token_file.read_text()
        assert scrape(url, token) == {"paceline_run": 1}
        say(run, started(0, steps=9))
        say(run, steps(1, [3.0, 2.0]))
        reader.refresh()
        found = scrape(url, token)
        assert (found["paceline_step"], found["paceline_loss"]) == (2, 2)
        assert found["paceline_planned_steps"] == 9
        assert found["paceline_samples_per_second"] == pytest.approx(640)
        say(run, steps(3, [float("nan")]))
        reader.refresh()
        assert str(scrape(url, token)["paceline_loss"]) == "nan"


@pytest.mark.parametrize("token", [None, "", "wrong", "wrøng"])
def test_without_the_token_nothing_is_said(tmp_path: Path, token: str | None) -> None:
    with endpoint(realistic_run(tmp_path, count=3)) as (reader, url):
        reader.refresh()
        with pytest.raises(urllib.error.HTTPError) as caught:
            scrape(url, token)
    with caught.value as refused:
        assert refused.code == 401
        assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert b"paceline_" not in refused.read()


def test_the_token_is_the_users_alone_and_stays(tmp_path: Path) -> None:
    run = realistic_run(tmp_path, count=3)
    with endpoint(run):
        assert run.metrics_token_file.stat().st_mode & 0o777 == 0o600
        token = run.metrics_token_file.read_text()
    with endpoint(run):
        assert run.metrics_token_file.read_text() == token
    run.metrics_token_file.chmod(0o644)
    said = paceline("watch", run.path, "--to", ANY_PORT, folder=tmp_path, expect=1).stderr
    assert "prometheus-token can be read by others" in said


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "lo"])
def test_it_listens_on_one_address(tmp_path: Path, host: str) -> None:
    before = listening(os.getpid())
    with endpoint(empty_run(tmp_path), f"prometheus:{host}:0") as (_, url):
        port = int(url.split(":")[2].split("/")[0])
        assert listening(os.getpid()) - before == {("127.0.0.1", port)}
    assert listening(os.getpid()) == before


def listening(process: int) -> set[tuple[str, int]]:
    connections = psutil.Process(process).net_connections("tcp")
    return {
        (each.laddr.ip, each.laddr.port)
        for each in connections
        if each.status == psutil.CONN_LISTEN
    }


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = f"prometheus:127.0.0.1:{other.getsockname()[1]}"
        said = paceline("watch", run.path, "--to", place, folder=tmp_path, expect=1).stderr
    assert "cannot be listened on: Address already in use" in said


MORE = """
import dataclasses
five = training
def training():
    return dataclasses.replace(five(), epochs=1000)
"""


@pytest.fixture
def digits(tmp_path: Path) -> "Iterator[tuple[subprocess.Popen[str], Run]]":
    """The example, longer than anybody waits, with an endpoint; and its folder."""
    write_training(tmp_path, MORE, (EXAMPLES / "digits" / "train.py").read_text())
    process = subprocess.Popen(
        [*PACELINE, "run", "train.py", "-n", "1", "--to", ANY_PORT],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not any((tmp_path / "runs").glob("*/job.toml")):
            assert process.poll() is None
            time.sleep(0.05)
        yield process, Run.open(next((tmp_path / "runs").iterdir()))
    finally:
        process.kill()
        process.communicate()


def scraped_while_it_trains(run: Run) -> dict[str, float]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        log = run.listeners_log.read_text() if run.listeners_log.exists() else ""
        if url := re.search(r"http\S+/metrics", log):
            found = scrape(url[0], run.metrics_token_file.read_text())
            if found.get("paceline_step", 0) > 1:
                return found
        time.sleep(0.1)
    raise AssertionError(f"no step was scraped: {log}")


def test_a_run_is_scraped_while_it_trains(
    digits: "tuple[subprocess.Popen[str], Run]", tmp_path: Path
) -> None:
    process, run = digits
    found = scraped_while_it_trains(run)
    assert found["paceline_loss"] > 0
    assert found["paceline_mean_forward_seconds"] > 0
    children = psutil.Process(process.pid).children(recursive=True)
    ports = [listening(each.pid) for each in children]
    assert sum(map(len, ports)) == 1  # one worker alone meets nobody
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 3, errors
    assert not any(each.is_running() for each in children)
    assert "failed" not in run.listeners_log.read_text()
    assert paceline_json("report", run.path, folder=tmp_path)["status"] == "stopped"


@pytest.mark.nightly
def test_the_follower_goes_with_its_run(digits: "tuple[subprocess.Popen[str], Run]") -> None:
    process, run = digits
    scraped_while_it_trains(run)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    _, alive = psutil.wait_procs(children, timeout=15)
    assert not alive


def test_training_goes_on_where_a_listener_fails(tmp_path: Path) -> None:
    write_training(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = f"prometheus:127.0.0.1:{other.getsockname()[1]}"
        done = paceline("run", "train.py", "-n", "1", "--to", place, folder=tmp_path)
    assert "finished: 20 steps" in done.stderr
    assert "a listener failed: see" in done.stderr
    (log,) = (tmp_path / "runs").glob("*/logs/listeners.log")
    assert log.read_text().count("failed and was dropped") == 1
