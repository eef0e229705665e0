"""Listeners by their names: what is refused, and that each fails for itself alone."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from command import paceline
from paceline.observe.audience import Audience, check_listener
from paceline.observe.digest import Observation
from paceline.observe.listener import LISTENERS, ListenerKind
from paceline.specs import PacelineError, Run
from report.folders import empty_run, realistic_run, started, steps


class Deaf:
    """Fails at the second thing that it is told."""

    where = "nowhere"
    heard: "list[str]" = []  # noqa: RUF012 -- of all that are made

    def __init__(self, run: Run, place: str | None) -> None:
        self.words = place or ""

    def take(self, news: Sequence[Observation]) -> None:
        if self.words == "fails" and any(seen.step for seen in news):
            raise RuntimeError("the disk\nis full")
        Deaf.heard.append(self.words)

    def close(self) -> None:
        Deaf.heard.append(f"{self.words} closed")


def test_one_that_fails_is_named_once_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LISTENERS._loaded, "deaf", ListenerKind(package="json", open=Deaf))
    monkeypatch.setattr(Deaf, "heard", [])
    said: list[str] = []
    audience = Audience(empty_run(tmp_path), ["deaf:fails", "deaf:hears"], said.append)
    audience.forward([started(0)])
    audience.forward([steps(1, [1.0])])
    audience.forward([steps(2, [1.0])])
    audience.close()
    assert Deaf.heard == ["fails", "hears", "hears", "hears", "hears closed"]
    assert said[2:] == ["--to deaf:fails failed and was dropped: RuntimeError: the disk is full"]
    assert audience.failed
    assert not audience.empty


@pytest.mark.parametrize(
    ("words", "problem", "fix"),
    [
        ("grafana", "unknown listener 'grafana'", "mlflow, prometheus, tensorboard, wandb"),
        (
            "prometheus:9464",
            "would listen on all interfaces",
            "give the address or the name of one interface",
        ),
        ("prometheus:0.0.0.0:9464", "would listen on all interfaces", "such as eth0"),
        ("prometheus:localhost", "is not HOST:PORT", "127.0.0.1:9464"),
        ("prometheus:localhost:70000", "is not HOST:PORT", "give both"),
    ],
)
def test_what_is_refused(words: str, problem: str, fix: str) -> None:
    with pytest.raises(PacelineError) as caught:
        check_listener(words)
    assert problem in caught.value.problem
    assert fix in (caught.value.fix or "")


@pytest.mark.parametrize("name", LISTENERS.builtin)
def test_a_package_that_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(LISTENERS.get(name), package="no_such_package")
    monkeypatch.setitem(LISTENERS._loaded, name, absent)
    with pytest.raises(PacelineError, match="needs the package no_such_package") as caught:
        check_listener(name)
    assert caught.value.fix == f'pip install "paceline[{name}]"'


def test_a_password_on_the_command_line() -> None:
    with pytest.raises(PacelineError, match="password on the command line") as caught:
        LISTENERS.get("mlflow").check("https://ann:secret@tracking.example")
    assert "MLFLOW_TRACKING_PASSWORD" in (caught.value.fix or "")
    assert "secret" not in str(caught.value)


def test_nothing_is_started_for_a_listener_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def training(): ...\n")
    said = paceline("run", "train.py", "--to", "grafana", folder=tmp_path, expect=2).stderr
    assert "unknown listener 'grafana'" in said
    assert not (tmp_path / "runs").exists()


def test_json_and_a_listener(tmp_path: Path) -> None:
    run = realistic_run(tmp_path, count=3)
    words = ("watch", run.path, "--json", "--to", "tensorboard")
    said = paceline(*words, folder=tmp_path, expect=2).stderr
    assert "--json prints a run once, but --to tensorboard follows it" in said


def test_watching_ends_where_its_only_listener_fails(tmp_path: Path) -> None:
    run = empty_run(tmp_path)  # it would be watched for ever
    (tmp_path / "file").touch()
    words = ("watch", run.path, "--to", "tensorboard:file")
    said = paceline(*words, folder=tmp_path, expect=1).stderr
    assert "--to tensorboard:file failed and was dropped" in said


def test_listeners_load_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from paceline.observe.audience import Audience;"
        "from paceline.specs import Run;"
        "audience = Audience(Run.open(Path(sys.argv[1])),"
        " ['tensorboard', 'prometheus:127.0.0.1:0'], print); audience.close();"
        "assert not audience.failed; assert not {'torch', 'tensorflow'} & sys.modules.keys()"
    )
    import subprocess

    run = realistic_run(tmp_path, count=3)
    subprocess.run([sys.executable, "-c", program, run.path], check=True, capture_output=True)
