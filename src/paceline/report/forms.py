"""The forms that a report has: a page, paper, pictures, tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from paceline.report.comparison.compared_runs import Comparison, compared
from paceline.report.comparison.page import (
    comparison_brief,
    comparison_rows,
    render_comparison,
    runs_table,
)
from paceline.report.drawing.brief import Brief
from paceline.report.drawing.chart import Picture
from paceline.report.drawing.figure_files import PictureForm, write_pictures
from paceline.report.drawing.pdf import to_pdf
from paceline.report.drawing.tables import Table, to_csv, to_latex
from paceline.report.reading.reader import RunReader
from paceline.report.reading.run_state import RunState
from paceline.report.run.figures import Summary, summary
from paceline.report.run.page import brief, render
from paceline.report.run.run_tables import run_table, steps_csv
from paceline.report.studies.page import render_study, study_brief
from paceline.report.studies.quality_page import quality_brief, render_quality
from paceline.report.studies.quality_tables import quality_rows, quality_table
from paceline.report.studies.study_tables import study_rows, study_table
from paceline.specs import Cluster, PacelineError, Run, StudyResult

Form = Literal["html", "pdf", "svg", "png", "csv", "latex"]
SUFFIX: dict[Form, str] = {
    "html": ".html",
    "pdf": ".pdf",
    "svg": "-svg",
    "png": "-png",
    "csv": ".csv",
    "latex": ".tex",
}


class Report(Protocol):
    """What can be looked at in every form."""

    def html(self) -> str:
        """One page that opens anywhere."""

    def brief(self) -> Brief:
        """What matters most."""

    def csv(self) -> str:
        """All numbers, a row for each thing that was measured."""

    def table(self) -> Table:
        """What a paper says."""

    def to_dict(self) -> dict[str, Any]:
        """For programs."""


@dataclass(frozen=True)
class RunReport:
    """Of one run."""

    run: Run
    cluster: Cluster | None = None
    """What power and devices cost."""

    @cached_property
    def _read(self) -> tuple[RunState, Summary]:
        state = RunReader(self.run).refresh()
        return state, summary(state, self.cluster)

    def html(self) -> str:
        """One page that opens anywhere."""
        return render(self.run, self.cluster)

    def brief(self) -> Brief:
        """What matters most."""
        return brief(*self._read)

    def csv(self) -> str:
        """A row for each step."""
        return steps_csv(self._read[0])

    def table(self) -> Table:
        """The run's figures."""
        return run_table(self._read[1])

    def to_dict(self) -> dict[str, Any]:
        """The run's figures."""
        return self._read[1].to_dict()


@dataclass(frozen=True)
class StudyReport:
    """Of a scaling study."""

    result: StudyResult

    def html(self) -> str:
        """One page that opens anywhere."""
        return render_study(self.result)

    def brief(self) -> Brief:
        """What matters most."""
        return study_brief(self.result)

    def csv(self) -> str:
        """A row for each point."""
        return to_csv(study_rows(self.result))

    def table(self) -> Table:
        """The points."""
        return study_table(self.result)

    def to_dict(self) -> dict[str, Any]:
        """Everything, every run."""
        return self.result.model_dump(mode="json")


@dataclass(frozen=True)
class QualityReport:
    """Of a study of quality."""

    result: StudyResult

    def html(self) -> str:
        """One page that opens anywhere."""
        return render_quality(self.result)

    def brief(self) -> Brief:
        """What matters most."""
        return quality_brief(self.result)

    def csv(self) -> str:
        """A row for each measure of each point."""
        return to_csv(quality_rows(self.result))

    def table(self) -> Table:
        """The comparisons."""
        return quality_table(self.result)

    def to_dict(self) -> dict[str, Any]:
        """Everything, every run."""
        return self.result.model_dump(mode="json")


@dataclass(frozen=True)
class ComparisonReport:
    """Of several runs."""

    runs: Sequence[Run]
    cluster: Cluster | None = None

    @cached_property
    def _found(self) -> Comparison:
        return compared(self.runs, self.cluster)

    def html(self) -> str:
        """One page that opens anywhere."""
        return render_comparison(self._found)

    def brief(self) -> Brief:
        """What matters most."""
        return comparison_brief(self._found)

    def csv(self) -> str:
        """A row for each run."""
        return to_csv(comparison_rows(self._found))

    def table(self) -> Table:
        """The runs."""
        return runs_table(self._found)

    def to_dict(self) -> dict[str, Any]:
        """Every run's figures, and what differs."""
        return self._found.to_dict()


def study_report(result: StudyResult) -> Report:
    """Of a study, by what it is about."""
    return StudyReport(result) if result.quality is None else QualityReport(result)


def write(report: Report, form: Form, output: Path | None = None) -> Path:
    """Write a report in one form; where to, if that is not given, follows from the form."""
    output = output or Path(f"report{SUFFIX[form]}")
    # Said before anything is read, which may take a while.
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
            f"{output} cannot be written: {error.strerror}", fix="give another place with -o"
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
            f"-o {output}: there is no folder {output.parent}", fix="make it, or give another place"
        )


def _pictures(report: Report) -> Sequence[Picture]:
    pictures = report.brief().pictures
    if not pictures:
        raise PacelineError(
            "no step has been taken, so there are no pictures", fix="use --format html"
        )
    return pictures
