"""The page of a run: one self-contained HTML file that works offline."""

from paceline.report.drawing.brief import Brief
from paceline.report.drawing.chart import Chart, drawing_packages
from paceline.report.drawing.tables import Table
from paceline.report.drawing.templates import environment, javascript
from paceline.report.run.interruption_figures import interruptions_words
from paceline.report.run.section import ReportedRun
from paceline.specs import Cluster, Run, units

MOST_HOSTS = 8


def render(run: Run, cluster: Cluster | None = None) -> str:
    """Read a run's folder and return its page.

    `cluster` provides prices and power, used if power was not measured.
    """
    return page(ReportedRun.read(run, cluster))


def page(run: ReportedRun) -> str:
    """Return the page of a run as self-contained HTML that loads nothing else."""
    said = brief(run)
    pages = environment()
    return pages.get_template("run.html.jinja").render(
        title=f"{said.title}: {run.summary.status}",
        said=said,
        alerts={name: each.alert for name, each in run.contents.items() if each.alert},
        sections=[
            (
                name,
                each,
                pages.from_string(each.template.read_text()).render(each.values)
                if each.template
                else None,
            )
            for name, each in run.contents.items()
            if each.shown
        ],
        pictures=said.pictures,
        javascript=javascript(drawing_packages()[1]) if said.pictures else "",
    )


def brief(run: ReportedRun) -> Brief:
    """Return the contents that the page and the PDF share."""
    contents = run.contents.values()
    return Brief(
        title=run.summary.name,
        sentence=_sentence(run),
        tiles=[tile for each in contents for tile in each.tiles],
        pictures=_pictures(run),
        tables=[figures_table(run)],
        remarks=[words for each in contents for words in each.remarks],
        notes=[words for each in contents for words in each.notes],
        sections=[each for each in contents if each.title],
    )


def figures_table(run: ReportedRun) -> Table:
    """Return the table of figures for a paper, without unknown values."""
    rows = [row for each in run.contents.values() for row in each.rows]
    known = [(name, value) for name, value in rows if value is not None]
    caption = f"{run.summary.name}: figures of the run, measured."
    return Table("Figures", ("Quantity", "Value"), known, ("Quantity",), caption)


def _pictures(run: ReportedRun) -> list[Chart]:
    """Draw the charts of all sections; empty if the run took no step."""
    if not run.state.step:
        return []
    altair, _ = drawing_packages()
    return [picture for each in run.contents.values() for picture in each.charts(altair)]


def _sentence(run: ReportedRun) -> str:
    figures, found = run.summary, run.state.interruptions
    steps = f"{figures.steps:,}"
    of = f" of {figures.planned_steps:,}" if figures.planned_steps else ""
    times = interruptions_words(found)
    after = f" after {times}" if found else ""
    words = {
        "waiting": "No worker has started yet.",
        "running": f"Running{after}: {steps}{of} steps so far.",
        "finished": f"Finished{after}: {steps}{of} steps, {figures.samples:,} samples.",
        "stopped": f"Stopped early at {steps}{of} steps{after}.",
        "failed": f"Failed after {steps}{of} steps" + f" and {times}" * bool(after) + ".",
    }[figures.status]
    if figures.status == "waiting" and after:
        words = f"Waiting for its next start{after}: {steps}{of} steps so far."
    if figures.hosts:
        shown = ", ".join(figures.hosts[:MOST_HOSTS])
        more = f" and {len(figures.hosts) - MOST_HOSTS:,} more" * (len(figures.hosts) > MOST_HOSTS)
        words += f" On {shown}{more}: {figures.device}, {figures.backend} over {figures.interface}."
    if run.state.began_time is not None:
        words += f" Started {units.moment(run.state.began_time)} UTC."
    return words
