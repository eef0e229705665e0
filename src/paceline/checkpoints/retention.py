"""Which checkpoints stay and which go."""

from collections.abc import Mapping

from paceline.specs import Saving


def expired(checkpoints: Mapping[int, Mapping[str, float]], saving: Saving) -> set[int]:
    """The steps whose checkpoints may go, of all steps with the figures of each."""
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
