"""Checkpoint retention: choose which checkpoints to delete."""

from collections.abc import Mapping

from paceline.specs import Saving


def expired(checkpoints: Mapping[int, Mapping[str, float]], saving: Saving) -> set[int]:
    """Return the steps whose checkpoints may be deleted, given the metrics of every checkpoint."""
    steps = sorted(checkpoints)
    kept = set(steps[-saving.keep_last :])
    if saving.keep_every:
        kept |= {step for step in steps if step % saving.keep_every == 0}
    if saving.best:
        sense, metric = saving.best
        rated = {
            step: figures[metric] for step, figures in checkpoints.items() if metric in figures
        }
        if rated:
            kept.add((min if sense == "min" else max)(rated, key=lambda step: rated[step]))
    return set(steps) - kept
