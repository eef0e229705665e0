"""`paceline.show`: a report as the output of a notebook's cell."""

import base64
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from paceline.remote.places import folder_to_read
from paceline.report.comparison.compared_runs import runs_in
from paceline.report.drawing.brief import Brief
from paceline.report.drawing.chart import drawing_packages
from paceline.report.drawing.figure_files import as_svg
from paceline.report.drawing.templates import environment
from paceline.report.formats import comparison_report, run_report
from paceline.specs import PacelineError


@dataclass(frozen=True)
class Shown:
    """A report that a notebook displays; elsewhere it prints as one sentence."""

    title: str
    sentence: str
    html: str = field(repr=False)

    def __repr__(self) -> str:
        """Return what a terminal shows."""
        return f"{self.title}: {self.sentence}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return self.html


def show(*places: str | Path) -> Shown:
    """Show a run in a notebook; several runs are compared.

    A place is a folder, or a run's URL. A run that still trains is shown as it is now; call `show`
    again for a later state.
    """
    if not places:
        raise PacelineError(
            "paceline.show() was called without a run",
            fix='give its folder, such as paceline.show("runs/gpt-20260101-120000")',
        )
    with ExitStack() as opened:
        folders = [opened.enter_context(folder_to_read(place)) for place in places]
        runs = runs_in(folders)
        report = run_report(runs[0]) if len(runs) == 1 else comparison_report(runs)
        brief = report.brief()
    return Shown(brief.title, brief.sentence, _html(brief))


def _html(brief: Brief) -> str:
    """Return a report's first screen as HTML without scripts, which loads nothing."""
    # As images, charts cannot run scripts, and the names inside one do not meet another's.
    images = {}
    if brief.pictures:
        vl_convert = drawing_packages()[1]
        for each in brief.pictures:
            svg = as_svg(each, vl_convert).encode()
            images[each.key] = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    template = environment().get_template("notebook.html.jinja")
    return template.render(said=brief, images=images)
