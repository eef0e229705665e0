"""Faults that the run survived, their cost, and the resulting goodput."""

import datetime
from collections.abc import Sequence
from types import ModuleType

from paceline.report.drawing.brief import Content, Tile
from paceline.report.drawing.chart import Chart
from paceline.report.drawing.tables import Table
from paceline.report.run.fault_history import FaultFigures, fault_figures, source_words
from paceline.report.run.goodput import goodput_sentence
from paceline.report.run.section import ReportedRun, Section
from paceline.report.run.timeline import timeline_picture
from paceline.specs import units

MOST_FAULTS = 50
LONGEST_REASON = 500


class _Faults(Section[FaultFigures]):
    order = 30
    key = "faults"

    def figures(self, run: ReportedRun) -> FaultFigures:
        return fault_figures(run.state)

    def content(self, run: ReportedRun, figures: FaultFigures) -> Content | None:
        if not figures.seen:
            return None

        def charts(altair: ModuleType) -> Sequence[Chart]:
            return [timeline_picture(run.state, figures, altair)]

        share = figures.goodput.share
        lost = units.duration(figures.goodput.lost_seconds)
        tile: Tile | None = None
        if share is not None:
            tile = ("Goodput", units.percent(share), f"{lost} lost to faults", "")
        sentence = goodput_sentence(figures.goodput)
        return Content(
            title="Faults",
            words=[sentence] if sentence else [],
            tables=[_table(figures)],
            charts=charts,
            tiles=[tile] if tile else [],
            rows=[
                ("Workers lost", f"{figures.lost_workers:,}"),
                ("Regroups", f"{figures.regroups:,}"),
                ("Steps refused", f"{figures.refused_steps:,}"),
                ("Lost to faults", lost),
                ("Goodput", None if share is None else units.percent(share)),
            ],
        )


SECTION = _Faults()


def _table(figures: FaultFigures) -> Table:
    shown = figures.events[-MOST_FAULTS:]
    rows = [
        (
            f"{datetime.datetime.fromtimestamp(each.time, datetime.UTC):%Y-%m-%d %H:%M:%S}",
            "–" if each.step is None else f"{each.step:,}",
            each.who,
            each.what.replace("_", " "),
            units.shortened(each.why, LONGEST_REASON),
            "–" if each.lost_seconds is None else units.duration(each.lost_seconds),
            "–" if each.source is None else source_words(each.source),
        )
        for each in shown
    ]
    caption = "Lost: time without training, in repeated steps, or in a refused step (estimated)."
    if len(shown) < len(figures.events):
        caption += f" The last {len(shown)} of {len(figures.events):,}."
    names = ("When (UTC)", "Step", "Who", "What", "Why", "Lost", "State from")
    words = ("When (UTC)", "Who", "What", "Why", "State from")
    return Table("Faults", names, rows, words, caption)
