"""A quality or batch study as one HTML file: whether each point learns as well as the base."""

from collections import Counter
from statistics import fmean

from paceline.report.drawing.brief import Brief, Tile
from paceline.report.drawing.chart import Chart, drawing_packages
from paceline.report.drawing.tables import Table
from paceline.report.drawing.templates import environment, javascript
from paceline.report.studies.batch_costs import cost_chart, cost_table
from paceline.report.studies.quality_charts import quality_pictures
from paceline.report.studies.quality_tables import quality_table
from paceline.report.studies.quality_words import difference, said, value
from paceline.report.studies.study_tables import point_names, where
from paceline.specs import Quality, StudyResult, units

MOST_RUNS = 200


def render_quality(result: StudyResult) -> str:
    """Return the page as self-contained HTML that loads nothing else."""
    quality = result.quality
    assert quality
    names = point_names([each.point for each in result.points])
    runs = [
        (name, run) for name, each in zip(names, quality.points, strict=True) for run in each.runs
    ]
    brief = quality_brief(result)
    pages = environment()
    pages.globals.update(loss=units.loss, percent=units.percent)
    pages.globals.update(verdict=said, difference=difference, value=value)
    return pages.get_template("quality.html.jinja").render(
        study=result.study,
        result=result,
        quality=quality,
        said=brief,
        pictures=brief.pictures,
        javascript=javascript(drawing_packages()[1]) if brief.pictures else "",
        costs=_cost_tables(result),
        points=list(zip(names, result.points, quality.points, strict=True)),
        base_name=names[quality.base],
        failures=[
            (name, why)
            for name, each in zip(names, result.points, strict=True)
            for why in each.failures
        ],
        measures=list(dict.fromkeys(name for _, run in runs for name in run.values)),
        runs=runs[:MOST_RUNS],
        all_runs=len(runs),
    )


def quality_brief(result: StudyResult) -> Brief:
    """Return the quality study's key results, independent of the output format."""
    assert result.quality
    return Brief(
        title=result.study.name,
        sentence=_sentence(result),
        tiles=_tiles(result, result.quality),
        pictures=_pictures(result, result.quality),
        tables=[quality_table(result), *_cost_tables(result)],
        remarks=result.findings,
    )


def _pictures(result: StudyResult, quality: Quality) -> list[Chart]:
    """Return the study's charts; empty if no run has finished."""
    if not any(each.runs for each in quality.points):
        return []
    altair, _ = drawing_packages()
    found = result.larger_batches
    costs = [cost_chart(found, altair)] if found and len(found.costs) > 1 else []
    return [*costs, *quality_pictures(result, altair)]


def _cost_tables(result: StudyResult) -> list[Table]:
    found = result.larger_batches
    return [cost_table(found)] if found and found.costs else []


def _sentence(result: StudyResult) -> str:
    study = result.study
    what = study.train.name + f":{study.function}" * (study.function != "training")
    finished = sum(len(each.runs) for each in result.points)
    planned = len(study.points) * study.repeat
    return (
        f"Does {what} learn as well? Measured {where(study)}: {finished:,} of {planned:,} runs"
        f" finished, {units.count(study.repeat, 'seed')} per point, with equal samples."
    )


def _tiles(result: StudyResult, quality: Quality) -> list[Tile]:
    every = [one for each in quality.points for one in each.comparisons]
    found = Counter(one.verdict for one in every)
    whole = f"of {units.count(len(every), 'comparison')}"
    differ = {key: found[key] for key in ("worse", "better", "higher", "lower") if found[key]}
    unsaid = found["unknown"] + found["failed"]
    samples = [run.samples for each in quality.points for run in each.runs]
    tiles = [
        (
            "The same",
            str(found["same"]),
            f"{whole}, within {units.percent(quality.margin)}",
            "",
        ),
        (
            "Different",
            str(sum(differ.values())),
            ", ".join(f"{count} {key}" for key, count in differ.items()) or whole,
            "failed" if found["worse"] else "",
        ),
        ("Undecided", str(unsaid), "too few seeds, or a run failed", "slow" if unsaid else ""),
        ("Seeds", str(result.study.repeat), "per point", ""),
    ]
    if samples:
        tiles.append(("Samples", f"{fmean(samples):,.0f}", "in each run", ""))
    return tiles
