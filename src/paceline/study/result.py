"""The result of a study: its points, laws and findings."""

from collections import Counter
from collections.abc import Sequence

from paceline.report.run.step_breakdown import MEANINGS
from paceline.report.studies.batch_words import batch_findings
from paceline.report.studies.quality_words import quality_findings
from paceline.report.studies.study_tables import limit_of
from paceline.specs import Limit, PointResult, Reach, StudyResult, units
from paceline.specs.measurements.study import FARTHEST, compares_quality, families
from paceline.study.larger_batches import larger_batches
from paceline.study.measured_points import point_results
from paceline.study.quality_points import quality
from paceline.study.scaling_laws import laws, reaches, with_scaling
from paceline.study.study_folder import StudyFolder

BOUND = 0.8
"""Efficiency below which nodes are better used for something else."""
WELL, BADLY = 0.9, 0.5
_HELP: dict[Limit, str] = {
    "compute": "Steps are mostly computation: more workers help as long as each has enough to do.",
    "network": "A larger batch, less communication (--sync, see paceline plan) or a faster"
    " network would"
    " help.",
    "data": "Data loading delays the workers: more Training(loaders=…), or samples that are"
    " cheaper to"
    " read, would help.",
    "slow worker": "One worker is slower than the others: check its node, or give it a"
    " smaller local batch"
    " (speeds in the plan).",
    "uneven steps": "Step times vary between workers, and all wait for the slowest: a mode"
    " without that wait"
    " (--sync local) or steadier steps would help.",
    "checkpoints": "Checkpoints delay the workers: save less often, or to a faster disk.",
    "other": "Work between the steps delays the workers: look at your own loop.",
}


def result(folder: StudyFolder) -> StudyResult:
    """Return the result of the runs that have finished so far."""
    study, states = folder.study, folder.states()
    points = with_scaling(point_results(study, states))
    if compares_quality(study.kind):
        compared = quality(study, states)
        larger = larger_batches(study, states, points, compared) if study.kind == "batch" else None
        learned = StudyResult(study=study, points=points, quality=compared, larger_batches=larger)
        return learned.model_copy(
            update={"findings": (*batch_findings(learned), *quality_findings(learned))}
        )
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
        found.append(
            f"{lead}{last.point.where} have a speed-up of {last.speedup.value:.2f} over one worker:"
            f" an efficiency of {units.percent(last.efficiency.value)}. {_verdict(last)}"
        )
        if len(drawn) == 1:  # with several curves, the charts show the rest
            found.append(f"{_lost(last)} {_HELP[limit]}")
            if last.repeats_needed is None:
                found += [_reach(each, last) for each in reached if each.family == family]
    return found


def _verdict(last: PointResult) -> str:
    """Say how well a point scales, as far as its interval supports it."""
    found = last.efficiency
    assert found
    if found.low is None or found.high is None:
        return "One run of each does not say how well it scales: repeat with --repeat 3."
    if last.repeats_needed is not None:
        return (
            f"The efficiency lies between {units.percent(found.low)} and"
            f" {units.percent(found.high)}: too noisy to say how well it scales, repeat with"
            f" --repeat {last.repeats_needed}."
        )
    low, high = _grade(found.low), _grade(found.high)
    return f"It scales {low}." if low == high else f"It scales {low} to {high}."


def _grade(efficiency: float) -> str:
    return "well" if efficiency >= WELL else "badly" if efficiency < BADLY else "fairly"


def _lost(last: PointResult) -> str:
    """Describe the step breakdown on the most workers."""
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
    return f"A step there: {', '.join(worst)}."


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
