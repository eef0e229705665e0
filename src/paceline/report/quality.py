"""A study of quality as one HTML file: does it learn as well?"""

from collections import Counter
from statistics import fmean

from paceline.report import wording
from paceline.report.drawing import drawing_packages
from paceline.report.pictures import Picture
from paceline.report.quality_pictures import quality_pictures
from paceline.report.quality_words import difference, said, value
from paceline.report.study_tables import point_names, where
from paceline.report.templates import environment, javascript
from paceline.specs import Comparison, Quality, StudyResult

MOST_RUNS = 200
Tile = tuple[str, str, str, str]


def render_quality(result: StudyResult) -> str:
    """The page, complete in itself: nothing is loaded from elsewhere."""
    quality = result.quality
    assert quality
    names = point_names([each.point for each in result.points])
    runs = [
        (name, run) for name, each in zip(names, quality.points, strict=True) for run in each.runs
    ]
    pictures, program = _drawn(result)
    pages = environment()
    pages.globals.update(loss=wording.loss, percent=wording.percent)
    pages.globals.update(said=said, difference=difference, value=value)
    return pages.get_template("quality.html.jinja").render(
        study=result.study,
        result=result,
        quality=quality,
        sentence=_sentence(result),
        tiles=_tiles(result, quality),
        pictures=pictures,
        javascript=program,
        points=list(zip(names, result.points, quality.points, strict=True)),
        base_name=names[quality.base],
        base_values=_first(quality),
        failures=[
            (name, why)
            for name, each in zip(names, result.points, strict=True)
            for why in each.failures
        ],
        measures=list(dict.fromkeys(name for _, run in runs for name in run.values)),
        runs=runs[:MOST_RUNS],
        all_runs=len(runs),
    )


def _drawn(result: StudyResult) -> tuple[list[Picture], str]:
    """The pictures, and the program that draws them; neither where nothing has finished."""
    assert result.quality
    if not any(each.runs for each in result.quality.points):
        return [], ""
    altair, vl_convert = drawing_packages()
    return quality_pictures(result, altair), javascript(vl_convert)


def _first(quality: Quality) -> tuple[Comparison, ...]:
    """Of these the base's values are taken, which all share."""
    return next((each.comparisons for each in quality.points if each.comparisons), ())


def _sentence(result: StudyResult) -> str:
    study = result.study
    what = study.train.name + f":{study.function}" * (study.function != "training")
    finished = sum(len(each.runs) for each in result.points)
    planned = len(study.points) * study.repeat
    return (
        f"Does {what} learn as well? Measured {where(study)}: {finished:,} of {planned:,} runs"
        f" finished, {wording.count(study.repeat, 'seed')} at each point, as many samples at all."
    )


def _tiles(result: StudyResult, quality: Quality) -> list[Tile]:
    """Label, big figure, a small line under it, and how good that is."""
    every = [one for each in quality.points for one in each.comparisons]
    found = Counter(one.verdict for one in every)
    whole = f"of {wording.count(len(every), 'comparison')}"
    differ = {key: found[key] for key in ("worse", "better", "higher", "lower") if found[key]}
    unsaid = found["unknown"] + found["failed"]
    samples = [run.samples for each in quality.points for run in each.runs]
    tiles = [
        ("The same", str(found["same"]), f"{whole}, within {wording.percent(quality.margin)}", ""),
        (
            "Different",
            str(sum(differ.values())),
            ", ".join(f"{count} {key}" for key, count in differ.items()) or whole,
            "failed" if found["worse"] else "",
        ),
        ("Not said", str(unsaid), "too few seeds, or a run failed", "slow" if unsaid else ""),
        ("Seeds", str(result.study.repeat), "of each point", ""),
    ]
    if samples:
        tiles.append(("Samples", f"{fmean(samples):,.0f}", "in each run", ""))
    return tiles
