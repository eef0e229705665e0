"""The output formats of a report: HTML, PDF, images, CSV and LaTeX."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from paceline.report.comparison.compared_runs import compared
from paceline.report.comparison.page import (
    comparison_brief,
    comparison_rows,
    render_comparison,
    runs_table,
)
from paceline.report.drawing.brief import Brief
from paceline.report.drawing.chart import Chart
from paceline.report.drawing.figure_files import PictureForm, write_pictures
from paceline.report.drawing.pdf import to_pdf
from paceline.report.drawing.tables import Table, rows_to_csv, to_csv, to_latex
from paceline.report.run.page import brief, figures_table, page
from paceline.report.run.section import ReportedRun
from paceline.report.studies.page import render_study, study_brief
from paceline.report.studies.quality_page import quality_brief, render_quality
from paceline.report.studies.quality_tables import quality_rows, quality_table
from paceline.report.studies.study_tables import study_rows, study_table
from paceline.specs import Cluster, PacelineError, Prices, Run, StudyResult

Form = Literal["html", "pdf", "svg", "png", "csv", "latex"]
SUFFIX: dict[Form, str] = {
    "html": ".html",
    "pdf": ".pdf",
    "svg": "-svg",
    "png": "-png",
    "csv": ".csv",
    "latex": ".tex",
}


@dataclass(frozen=True)
class Report:
    """A report; each form is computed on demand."""

    html: Callable[[], str]
    """A self-contained page."""
    brief: Callable[[], Brief]
    """The first screen, charts and tables, for PDF and image files."""
    csv: Callable[[], str]
    """One row per step, point or run."""
    table: Callable[[], Table]
    """The figures, for a paper."""
    to_dict: Callable[[], dict[str, Any]]
    """All figures, for programs."""
    schema: str
    """Name of their form (see `paceline help json`)."""


def run_report(run: Run, cluster: Cluster | None = None, prices: Prices | None = None) -> Report:
    """Report on one run; `cluster` provides power, and prices unless they are given."""
    read = cache(lambda: ReportedRun.read(run, cluster, prices))

    def csv() -> str:
        state = read().state
        columns = (state.step, state.loss, state.seconds, state.samples, state.time)
        names = ("step", "loss", "seconds", "samples", "time")
        return to_csv(names, zip(*columns, strict=True))

    return Report(
        html=lambda: page(read()),
        brief=lambda: brief(read()),
        csv=csv,
        table=lambda: figures_table(read()),
        to_dict=lambda: read().to_dict(),
        schema="run",
    )


def comparison_report(
    runs: Sequence[Run], cluster: Cluster | None = None, prices: Prices | None = None
) -> Report:
    """Report on several runs."""
    found = cache(lambda: compared(runs, cluster, prices))
    return Report(
        html=lambda: render_comparison(found()),
        brief=lambda: comparison_brief(found()),
        csv=lambda: rows_to_csv(comparison_rows(found())),
        table=lambda: runs_table(found()),
        to_dict=lambda: found().to_dict(),
        schema="report.comparison",
    )


def study_report(result: StudyResult) -> Report:
    """Report on a scaling study or a quality study."""
    quality = result.quality is not None
    rows = quality_rows if quality else study_rows
    return Report(
        html=lambda: (render_quality if quality else render_study)(result),
        brief=lambda: (quality_brief if quality else study_brief)(result),
        csv=lambda: rows_to_csv(rows(result)),
        table=lambda: (quality_table if quality else study_table)(result),
        to_dict=lambda: result.model_dump(mode="json"),
        schema="study",
    )


def write(report: Report, form: Form, output: Path | None = None) -> Path:
    """Write a report in one form; the default output path depends on the form."""
    output = output or Path(f"report{SUFFIX[form]}")
    # Check before reading, which may take a while.
    _check(output, form)
    try:
        match form:
            case "svg" | "png":
                write_pictures(_pictures(report), output, form)
            case "html":
                output.write_text(report.html())
            case "pdf":
                output.write_bytes(to_pdf(report.brief()))
            case "csv":
                output.write_text(report.csv())
            case "latex":
                output.write_text(to_latex(report.table()))
    except OSError as error:
        raise PacelineError(
            f"{output} cannot be written: {error.strerror}", fix="give another path with -o"
        ) from None
    return output


def _check(output: Path, form: Form) -> None:
    if form in get_args(PictureForm):
        if output.exists() and not output.is_dir():
            raise PacelineError(
                f"-o {output} is a file, but --format {form} writes a file for each picture",
                fix="give a folder",
            )
    elif output.is_dir():
        raise PacelineError(
            f"-o {output} is a folder, but --format {form} writes one file",
            fix=f"give a file, such as -o {output / 'report'}{SUFFIX[form]}",
        )
    elif not output.parent.is_dir():
        raise PacelineError(
            f"-o {output}: there is no folder {output.parent}",
            fix="create it, or give another path",
        )


def _pictures(report: Report) -> Sequence[Chart]:
    pictures = report.brief().pictures
    if not pictures:
        raise PacelineError(
            "no step has been taken, so there are no pictures", fix="use --format html"
        )
    return pictures
