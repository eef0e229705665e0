"""Runs the conformance checks one after another; a failing check never stops the others."""

import datetime
import re
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from paceline.conformance.check import Check, Outcome, failed, not_applicable
from paceline.conformance.checks import CHECKS
from paceline.conformance.report import CheckResult, ConformanceReport
from paceline.conformance.session import Session
from paceline.observe.progress_bar import Advance
from paceline.report import RunReader
from paceline.specs import PacelineError

LONGEST_SECONDS = 600.0
"""No check starts later, here and on a calm machine; on a cluster, jobs may have to wait for their
nodes."""


def chosen_checks(names: Sequence[str]) -> list[Check]:
    """Return the named checks, or all."""
    known = [each.name for each in CHECKS]
    for name in names:
        if name not in known:
            raise PacelineError(
                f"there is no check {name!r}", fix=f"use one of: {', '.join(known)}"
            )
    return [each for each in CHECKS if not names or each.name in names]


def report_of(session: Session, found: Sequence[CheckResult]) -> ConformanceReport:
    """Return the report of these results."""
    return ConformanceReport(
        date=datetime.date.today(),
        nodes=session.nodes,
        devices_per_node=session.devices,
        checks=tuple(found),
    )


def results(
    checks: Iterable[Check], session: Session, advance: Advance
) -> Iterator[tuple[CheckResult, str]]:
    """Run checks, and yield each result with its problem in full, or an empty text."""
    planned = list(checks)
    total = sum(each.typical_seconds for each in planned)
    begin, done = time.monotonic(), 0.0
    for check in planned:
        advance(done / total, check.name)
        started = time.monotonic()
        longest = LONGEST_SECONDS * session.slowness
        late = session.cluster.nodes is None and started - begin > longest
        outcome, problem = (_late(longest), "") if late else _outcome(check, session)
        done += check.typical_seconds
        advance(done / total, check.name)
        yield (
            CheckResult(
                name=check.name,
                state=outcome.state,
                figure=outcome.figure,
                figures=outcome.figures,
                seconds=round(time.monotonic() - started, 1),
            ),
            problem,
        )


def _late(longest_seconds: float) -> Outcome:
    return failed(f"not started: {longest_seconds / 60:.0f} minutes were over")


def _outcome(check: Check, session: Session) -> tuple[Outcome, str]:
    if session.workers < check.least_workers:
        return not_applicable(f"needs {check.least_workers} devices; there is 1"), ""
    try:
        outcome = check.run(session)
    except PacelineError as error:
        return failed(anonymous(error.problem, session)), str(error)
    except Exception as error:  # a mistake in a check must not stop the others
        return failed(anonymous(f"{type(error).__name__}: {error}", session)), repr(error)
    figure = anonymous(outcome.figure, session)
    problem = outcome.figure if outcome.state == "failed" else ""
    return Outcome(outcome.state, figure, outcome.figures), problem


def anonymous(text: str, session: Session) -> str:
    """Return the first line of a text without this machine's name and the user's paths."""
    line = text.partition("\n")[0]
    for path in (session.runs.absolute(), Path.cwd(), Path.home()):
        line = line.replace(str(path), "…")
    nodes = {each.node for run in session.all_runs for each in RunReader(run).refresh().started}
    for node in {socket.gethostname(), *nodes}:
        line = re.sub(rf"\b{re.escape(node)}\b", "a node", line)
    return line
