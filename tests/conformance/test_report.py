"""The report can be verified, and a check that raises does not stop the others."""

import datetime
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from paceline.conformance.check import Check, Outcome, failed, passed
from paceline.conformance.report import CheckResult, ConformanceReport
from paceline.conformance.runner import chosen_checks, report_of, results
from paceline.conformance.session import Session
from paceline.specs import PacelineError


def _report() -> ConformanceReport:
    result = CheckResult(
        name="kill", state="passed", figure="regrouped", figures={"seconds": [0.25]}, seconds=3.0
    )
    return ConformanceReport(
        date=datetime.date(2026, 11, 18), nodes=1, devices_per_node=2, checks=(result,)
    )


def test_an_unchanged_report_is_read_again(tmp_path: Path) -> None:
    _report().write(tmp_path / "devices.json")
    assert ConformanceReport.read_verified(tmp_path / "devices.json") == _report()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["checks"][0]["figures"].update(seconds=[0.1]), "was changed"),
        (lambda content: content.update(nodes=64), "was changed"),
        (lambda content: content.pop("sha256"), "is not a report"),
        (lambda content: content["checks"][0].update(state="fine"), "is not a report"),
    ],
)
def test_a_changed_report_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "devices.json"
    _report().write(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(PacelineError, match=message):
        ConformanceReport.read_verified(path)


def _raises(session: Session) -> Outcome:
    raise PacelineError(
        f"{session.runs.absolute()} on {socket.gethostname()} broke", fix="nothing to do"
    )


def test_a_check_that_raises_does_not_stop_the_others(tmp_path: Path) -> None:
    checks = [
        Check("raises", "it raises", _raises, 1),
        Check("mistake", "it has a mistake", lambda session: passed(f"{1 // 0}"), 1),
        Check("two", "it needs two", lambda session: passed("never"), 1, least_workers=2),
        Check("fails", "it fails", lambda session: failed("0.5 of plain"), 1),
        Check("passes", "it passes", lambda session: passed("fine", seconds=1.0), 1),
    ]
    session = Session(devices=1, runs=tmp_path / "runs")
    done: list[float] = []
    found = list(results(checks, session, lambda part, note="": done.append(part)))
    report = report_of(session, [result for result, _ in found])
    assert [each.state for each in report.checks] == [
        *("failed", "failed", "not applicable", "failed", "passed")
    ]
    assert not report.passed
    assert report.checks[0].figure == "… on a node broke"
    assert "broke" in found[0][1]
    assert done == sorted(done)
    assert done[-1] == 1.0


def test_an_unknown_check_is_refused() -> None:
    with pytest.raises(PacelineError, match="there is no check 'kil'"):
        chosen_checks(["kil"])
