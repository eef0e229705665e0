"""All that came of a study."""

from collections import Counter
from collections.abc import Sequence

from paceline.report.run.step_breakdown import MEANINGS
from paceline.report.studies.quality_words import quality_findings
from paceline.report.studies.study_tables import limit_of
from paceline.specs import Limit, PointResult, Reach, StudyResult, units
from paceline.specs.measurements.study import FARTHEST, families
from paceline.study.learned_points import quality
from paceline.study.measured_points import point_results
from paceline.study.scaling_laws import laws, reaches, with_scaling
from paceline.study.study_folder import StudyFolder

BOUND = 0.8
"""Of the efficiency, below which nodes are better used for something else."""
WELL, BADLY = 0.9, 0.5
_HELP: dict[Limit, str] = {
    "compute": "Steps are mostly computing, so that more workers help as long as each has enough to"
    " do.",
    "network": "A larger batch, or exchanging less (--sync, see paceline plan), would help; a"
    " faster network would, too.",
    "data": "Loading the data holds the workers up: more Training(loaders=…), or samples that are"
    " cheaper to read, would help.",
    "slow worker": "One worker is slower than the others: look at its node, or give it less to do"
    " (speeds in the plan).",
    "uneven steps": "Steps take unevenly long, and all wait for the last: modes that need not wait"
    " (--sync local) or steadier steps would help.",
    "checkpoints": "Checkpoints hold the workers up: save less often, or to a faster disk.",
    "other": "What is done between steps holds the workers up: look at your own loop.",
}


def result(folder: StudyFolder) -> StudyResult:
    """What is known of a study so far."""
    study, states = folder.study, folder.states()
    points = with_scaling(point_results(study, states))
    if study.kind == "quality":
        learned = StudyResult(study=study, points=points, quality=quality(study, states))
        return learned.model_copy(update={"findings": tuple(quality_findings(learned))})
    fitted = laws(points, study.kind)
    reached = reaches(fitted, points, BOUND)
    return StudyResult(
        study=study,
        points=points,
        laws=fitted,
        reaches=reached,
        findings=tuple(_findings(points, reached)),
    )


def _findings(points: Sequence[PointResult], reached: Sequence[Reach]) -> list[str]:
    found = []
    drawn = families(points)
    for family, members in drawn.items():
        lead = f"On the curve {family}: " if family else ""
        if len(members) < 2:
            continue
        last = members[-1]
        assert last.speedup
        assert last.efficiency
        limit = limit_of(last.runs)
        assert limit
        how = (
            "well"
            if last.efficiency.value >= WELL
            else "badly"
            if last.efficiency.value < BADLY
            else "fairly"
        )
        found.append(
            f"{lead}{last.point.where} are {last.speedup.value:.2f} x as fast as one worker:"
            f" {units.percent(last.efficiency.value)} of what they could be. It scales {how}."
        )
        if len(drawn) == 1:  # of several curves, the pictures say the rest
            found.append(f"{_lost(last)} {_HELP[limit]}")
            found += [_reach(each, last) for each in reached if each.family == family]
    return found


def _lost(last: PointResult) -> str:
    """Where the time of a step went on the most workers."""
    runs = last.runs
    parts = Counter[str]()
    for run in runs:
        parts.update(run.seconds)
    whole = sum(parts.values()) or 1.0
    worst = [
        f"{units.percent(seconds / whole)} {MEANINGS[part]}"  # type: ignore[index]
        for part, seconds in parts.most_common()
        if seconds >= 0.05 * whole
    ]
    return f"Of a step there, {', '.join(worst)}."


def _reach(reach: Reach, last: PointResult) -> str:
    most = last.point.workers
    if reach.workers is None:
        return (
            f"Efficiency stays above {units.percent(reach.bound)} beyond {FARTHEST * most:,}"
            " workers, if the fitted law holds that far."
        )
    where = "beyond what was measured" if reach.workers > most else "within what was measured"
    words = (
        f"Efficiency falls below {units.percent(reach.bound)} with more than"
        f" {units.count(reach.workers, 'worker')}, {where}."
    )
    if reach.peak_workers is not None:
        words += f" With more than {reach.peak_workers:,}, throughput itself would fall."
    return words
