"""`paceline doctor --devices` on two CPU workers, as a user runs it."""

import json
import os
import socket
from pathlib import Path

import pytest

from command import paceline
from conformance.reports import states
from outside import environment
from paceline.conformance.checks import CHECKS

pytestmark = pytest.mark.slow


@pytest.mark.timeout(320)
def test_quick_checks_on_two_workers(tmp_path: Path) -> None:
    """What is not asked for does not run."""
    done = paceline(
        *("doctor", "--devices", "-n", "2", "--check", "kill", "--check", "devices"),
        folder=tmp_path,
        seconds=300,
    )
    report = json.loads((tmp_path / "devices.json").read_text())
    assert states(report) == {"devices": "passed", "kill": "passed"}
    assert "regrouped in" in done.stdout
    text = json.dumps(report)
    assert socket.gethostname() not in text
    assert str(tmp_path) not in text
    paceline("doctor", "--verify", "devices.json", folder=tmp_path)


def test_one_device_says_what_needs_two(tmp_path: Path) -> None:
    done = paceline(
        *("doctor", "--devices", "-n", "1", "--check", "layouts", "--json"), folder=tmp_path
    )
    (result,) = json.loads(done.stdout)["checks"]
    assert (result["state"], result["figure"]) == ("not applicable", "needs 2 devices; there is 1")


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_all_checks(tmp_path: Path, kind: str) -> None:
    variables = environment("simulated") | {
        "PACELINE_DEVICE_KIND": kind,
        "PACELINE_SIM_DEVICES": "2",
    }
    new = {name: value for name, value in variables.items() if os.environ.get(name) != value}
    command = ("doctor", "--devices", "-n", "2")
    paceline(*command, folder=tmp_path, seconds=800, **new)  # type: ignore[arg-type]
    found = states(json.loads((tmp_path / "devices.json").read_text()))
    assert list(found) == [each.name for each in CHECKS]
    assert found["power"] in ("passed", "not applicable")
    assert found["host-waits"] == ("not applicable" if kind == "cpu" else "passed")
    assert {found[name] for name in found if name not in ("power", "host-waits")} == {"passed"}
