"""The printed result of a study: its points as a table, and its findings."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from paceline.specs import Interval, LargerBatches, PointResult, Quality, StudyResult


def show(found: "StudyResult") -> None:
    """Print the table, then the findings and failures."""
    from paceline.cli.tables.table import console, table

    out = console()
    if found.quality is not None:
        out.print(_learned(found, found.quality))
        if found.larger_batches is not None and found.larger_batches.costs:
            out.print(_costs(found.larger_batches))
        _say(found, out)
        return
    headings = ["where", "batch", "samples/s", "speed-up", "efficiency", "ms/step", "limit"]
    predicted = any(each.predicted_samples_per_second for each in found.points)
    headings += ["predicted"] if predicted else []
    families = any(each.point.family for each in found.points)
    headings = (["varied"] if families else []) + headings
    made = table(*headings, words=("varied", "where", "limit"))
    for each in found.points:
        lead = [each.point.family or "–"] if families else []
        made.add_row(*lead, *_row(each, predicted=predicted))
    out.print(made)
    _say(found, out)


def _say(found: "StudyResult", out: "Console") -> None:
    for words in found.findings:
        out.print(words, markup=False)
    for each in found.points:
        for failure in each.failures:
            out.print(f"failed: {each.point.where}: {failure}", markup=False)


def _learned(found: "StudyResult", quality: "Quality") -> "Table":
    """Return a table of each measure at each point, compared with the base."""
    from paceline.cli.tables.table import table
    from paceline.report.studies.quality_words import difference, short, value
    from paceline.report.studies.study_tables import point_names

    made = table(
        *("where", "batch", "measure", "value", "difference", "margin", "seeds", "verdict"),
        words=("where", "measure", "verdict"),
    )
    names = point_names([each.point for each in found.points])
    for number, each in enumerate(quality.points):
        runs = found.points[number].runs
        lead = [names[number], f"{runs[0].batch:,}" if runs else "–"]
        for measure, found_there in quality.of_base.items() if number == quality.base else ():
            made.add_row(
                *(*lead, measure, value(found_there), "–", "–", str(len(each.runs)), "base")
            )
        for one in each.comparisons:
            made.add_row(
                *(*lead, one.measure, value(one.value), difference(one.difference)),
                *(f"±{short(one.margin)}", str(one.seeds), one.verdict),
            )
        if not each.comparisons and number != quality.base:
            made.add_row(*lead, *["–"] * 4, "0", "–")
    return made


def _costs(found: "LargerBatches") -> "Table":
    """Return a table of what each batch takes to the target loss."""
    from paceline.cli.tables.table import table
    from paceline.report.studies.batch_costs import HEADINGS, cost_rows

    made = table(*(name.lower() for name in HEADINGS), words=())
    for row in cost_rows(found):
        made.add_row(*row)
    return made


def _row(each: "PointResult", *, predicted: bool) -> list[str]:
    from paceline.report.studies.study_tables import limit_of
    from paceline.specs import units

    if not each.runs or each.samples_per_second is None:
        return [each.point.where, *["–"] * (6 + predicted)]
    rate = each.samples_per_second.value
    said = each.predicted_samples_per_second
    return [
        each.point.where,
        f"{each.runs[0].batch:,}",
        _with_interval(each.samples_per_second),
        f"{each.speedup.value:.2f} x" if each.speedup else "–",
        units.percent(each.efficiency.value) if each.efficiency else "–",
        units.milliseconds(sum(run.step_seconds for run in each.runs) / len(each.runs)),
        limit_of(each.runs) or "–",
        *([f"{units.rate(said)} ({said / rate - 1:+.0%})" if said else "–"] if predicted else []),
    ]


def _with_interval(number: "Interval") -> str:
    from paceline.specs import units

    half = f" ± {units.rate(number.half)}" if number.half is not None else ""
    return units.rate(number.value) + half
