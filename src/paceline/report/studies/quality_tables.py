"""A quality study in numbers: flat rows, and a table for a paper."""

from paceline.report.drawing.tables import Table
from paceline.report.studies.quality_words import difference, said, value
from paceline.report.studies.study_tables import Row, point_columns, point_names, where
from paceline.specs import StudyResult, units


def quality_rows(result: StudyResult) -> list[Row]:
    """Return one row for each measure of each point that is compared with the base."""
    quality = result.quality
    assert quality
    return [
        {
            **point_columns(each),
            "measure": one.measure,
            "value": one.value.value,
            "base": one.base.value,
            "difference": one.difference.value,
            "difference_low": one.difference.low,
            "difference_high": one.difference.high,
            "margin": one.margin,
            "seeds": one.seeds,
            "verdict": one.verdict,
        }
        for each, learned in zip(result.points, quality.points, strict=True)
        for one in learned.comparisons
    ]


def quality_table(result: StudyResult) -> Table:
    """Return the same data as a formatted table."""
    quality, study = result.quality, result.study
    assert quality
    names = point_names([each.point for each in result.points])
    lines = [
        [name, one.measure, value(one.value), difference(one.difference), said(one)]
        for name, each in zip(names, quality.points, strict=True)
        for one in each.comparisons
    ]
    caption = (
        f"{study.name}: how well {study.train.name} learns compared with"
        f" {names[quality.base]}, measured {where(study)},"
        f" {units.count(study.repeat, 'seed')} of each point; ± is half of a 95 % interval, paired"
        f" by seed; the same: within {units.percent(quality.margin)} by two"
        " one-sided tests."
    )
    headings = ["Where", "Measure", "Value", "Difference", "Verdict"]
    return Table("Points", headings, lines, ("Where", "Measure", "Verdict"), caption)
