"""The results of a batch study in words, shared by the terminal and the page."""

from pathlib import Path

from paceline.report.studies.quality_words import short
from paceline.specs import LargerBatches, StudyResult, units


def batch_findings(result: StudyResult) -> list[str]:
    """Return how large a batch is as good, the critical batch, and the seeds that are missing."""
    found = result.larger_batches
    if found is None or result.quality is None:
        return []
    words = [_largest(found, result)]
    if (first := result.study.starts_from) is not None:
        words.append(
            f"All runs start from the checkpoint of step {first.step:,} of {Path(first.run).name},"
            " and seeds differ only after it: another checkpoint may have another answer."
        )
    if (measured := _measured(found)) is not None:
        words.append(measured)
    if (seeds := _seeds(result)) is not None:
        words.append(seeds)
    return words


def _largest(found: LargerBatches, result: StudyResult) -> str:
    margin = units.percent(result.study.margin)
    if found.largest is None:
        return (
            f"No larger batch is shown to be as good within {margin}, with equal samples and"
            " scaled rates."
        )
    most = max(point.batch_times for point in result.study.points)
    more = " Larger ones were not tried." if found.largest == most else ""
    return (
        f"Up to {found.largest} times the batch, the training learns as well within {margin}, with"
        f" equal samples and scaled rates.{more}"
    )


def _measured(found: LargerBatches) -> str | None:
    if found.target_loss is None or len(found.costs) < 2:
        return None
    to = f"To a training loss of {units.loss(found.target_loss)}, which every run reached,"
    if found.measured is None:
        words = f"{to} larger batches took no more samples: no critical batch can be seen."
    else:
        fitted = units.bounded(found.measured.value, found.measured.low, found.measured.high)
        words = f"{to} the samples follow a critical batch of {fitted}."
    if found.predicted is None:
        return f"{words} The gradient noise predicts none: it was not resolved."
    return f"{words} The gradient noise of the smallest batch predicts {found.predicted:,.0f}."


def _seeds(result: StudyResult) -> str | None:
    """Name the comparisons that need more seeds for a verdict."""
    assert result.quality
    unknown = [
        one
        for each in result.quality.points
        for one in each.comparisons
        if one.verdict == "unknown" and one.spread is not None
    ]
    if not unknown:
        return None
    most = max(unknown, key=lambda one: (one.spread or 0) / (one.margin or 1))
    needed = "more than 1,000" if most.seeds_needed is None else f"{most.seeds_needed}"
    return (
        f"Seeds differ by {short(most.spread or 0)} in {most.measure}, beside a margin of"
        f" {short(most.margin)}: for a verdict on two that learn as well, repeat with"
        f" --seeds {needed}."
    )
