"""The step breakdown: where a step's time goes, and the limit of the run."""

from collections.abc import Sequence
from types import ModuleType

from paceline.report.drawing.brief import Content
from paceline.report.drawing.chart import Chart
from paceline.report.run.section import ReportedRun, Section
from paceline.report.run.step_breakdown import Breakdown, breakdown, breakdown_picture
from paceline.specs import units


class _Breakdown(Section[Breakdown | None]):
    order = 60
    key = "breakdown"

    def figures(self, run: ReportedRun) -> Breakdown | None:
        return breakdown(run.state)

    def content(self, run: ReportedRun, figures: Breakdown | None) -> Content | None:
        if figures is None:
            return None

        def charts(altair: ModuleType) -> Sequence[Chart]:
            return [breakdown_picture(run.state, figures, altair)]

        share = f"{units.percent(figures.limit_share)} of a step"
        small = share
        if figures.limit == "slow worker":
            small = f"worker {figures.slow[0].rank}, {figures.slow[0].reason}: {share}"
        return Content(
            charts=charts,
            tiles=[("Limited by", figures.limit.capitalize(), small, "")],
            rows=[("Limited by", f"{figures.limit}, {share}")],
        )


SECTION = _Breakdown()
