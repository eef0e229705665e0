"""Failures: the worker that failed first, its last lines, and all others."""

from pathlib import Path

from paceline.report.drawing.brief import Content
from paceline.report.reading.failure_cause import cause
from paceline.report.reading.run_state import RunState
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import Failed

MOST_FAILURES = 20


class _Failure(Section[None]):
    order = 90

    def content(self, run: ReportedRun, figures: None) -> Content | None:
        found = cause(run.state, run.run)
        earlier = _before_the_last_start(run.state)[:MOST_FAILURES]
        if found is None and not earlier:
            return None
        failures = sorted(run.state.failures, key=lambda each: (each.lost_peer, each.time))
        return Content(
            title="What failed" if found else "Failures before the last start",
            words=[f"{found.where}: {found.message}"] if found else [],
            alert=(found.where, found.message) if found else None,
            template=Path(__file__).with_suffix(".html.jinja"),
            values={
                "cause": found,
                "failures": failures[:MOST_FAILURES],
                "all_failures": len(failures),
                "earlier": earlier,
            },
        )


SECTION = _Failure()


def _before_the_last_start(state: RunState) -> list[tuple[int, Failed]]:
    """Return the failures of earlier starts of the run, with the number of each start."""
    numbered = [(state.start_number(each.generation), each) for each in state.earlier_failures]
    last = state.start_number(state.generation)
    return [(number, each) for number, each in numbered if number < last]
