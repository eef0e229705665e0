"""Workers: busy time per step and status of each."""

from pathlib import Path

from paceline.report.drawing.brief import Content
from paceline.report.drawing.tables import Table
from paceline.report.run.section import ReportedRun, Section
from paceline.report.run.step_breakdown import SLOW_FACTOR
from paceline.report.run.worker_status import WorkerStatus, listed, worker_statuses
from paceline.specs import units

MOST_WORKERS = 64


class _Workers(Section[None]):
    order = 70

    def content(self, run: ReportedRun, figures: None) -> Content:
        startup = run.summary.startup_seconds
        took = "–" if startup is None else units.duration(startup)
        tiles = [("Start-up", took, "to the first step", "")]
        rows = [("Start-up", None if startup is None else took)]
        found = worker_statuses(run.state)
        if not found:
            return Content(tiles=tiles, rows=rows)
        shown = listed(found, MOST_WORKERS)
        caption = (
            "Mean step time as each worker measured it. Busy: a worker's time without waiting for"
            f" others, relative to the median worker; above {SLOW_FACTOR} it is slow."
        )
        if len(shown) < len(found):
            caption += (
                f" {len(shown)} of {units.count(len(found), 'worker')}: those that failed, then the"
                " slowest."
            )
        return Content(
            title="Workers",
            tables=[_table(shown, caption)],
            template=Path(__file__).with_suffix(".html.jinja"),
            values={
                "caption": caption,
                "workers": shown,
                "slowest": max(one.slowness or 0.0 for one in found),
            },
            tiles=tiles,
            rows=rows,
        )


SECTION = _Workers()


def _table(shown: list[WorkerStatus], caption: str) -> Table:
    rows = [
        (
            str(one.worker.rank),
            one.worker.node,
            f"{one.worker.state.step:,}" if one.worker.state else "–",
            "–" if (mean := one.worker.mean_step_seconds) is None else units.milliseconds(mean),
            "–" if one.slowness is None else f"{one.slowness:.2f}",
            one.text,
        )
        for one in shown
    ]
    names = ("Worker", "Node", "Steps", "ms/step", "Busy", "State")
    return Table("Workers", names, rows, ("Node", "State"), caption)
