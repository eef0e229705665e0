"""How replicas agree by a plan, in words, and why so."""

from dataclasses import replace

import numpy as np

from paceline.plan.calibration.calibrate import Fit
from paceline.plan.search.best_layout import Best
from paceline.specs.plans.estimate import Alternative
from paceline.specs.plans.sync import Sync

_WORDS = {
    "allreduce": "the mean gradient in every step",
    "canonical": "the mean gradient in every step, with the same bits on any number of replicas",
    "local": "steps of their own, and the mean of their weights every {every} steps",
    "diloco": "steps of their own, and an outer step by their mean change every {every} steps",
    "sparseloco": "steps of their own, and the largest of their changes every {every} steps",
    "gossip": "a mean with a few others every {every} steps",
    "easgd": "a pull towards a common centre every {every} steps",
    "stale": "a server that has the weights",
}
_NAMES = {"allreduce": "all-reduce", "local": "local steps", "diloco": "DiLoCo"}


def sync_words(sync: Sync) -> str:
    """A way to agree: `the mean gradient in every step, sent as int8`."""
    words = _WORDS[sync.mode].format(every=sync.every)
    if sync.compress != "none":
        words += f", sent as {sync.compress}"
    if sync.overlap:
        words += f", on its way for {sync.overlap} step{'s' if sync.overlap > 1 else ''}"
    return words


def agreement(best: Best, found: Fit, *, asked: bool) -> str:
    """How the replicas of a plan agree, and why; nothing where there are none."""
    if best.estimate.layout.replicas == 1:
        return ""
    sync = best.estimate.sync
    words = f"Replicas agree by {sync_words(sync)}"
    if not sync.by_engine:
        words += f" (--sync {sync.short()})"
    if asked:
        return f"{words}, as asked for."
    if sync.by_engine:
        return f"{words}: the links take {best.waiting:.0%} of it."
    plain = _exchanging_plainly(best, found)
    return f"{words}: by a plain all-reduce, the link would take {plain:.0%} of a step."


def assumed(best: Best) -> list[str]:
    """What the choice has taken for granted."""
    times = best.estimate.extra_samples
    if times == 1.0:
        return []
    return [
        f"assumed, not measured: agreeing this way takes {times:.2f} x the samples of plain"
        " all-reduce to the same loss; the choice counts that, the steps and times shown do not"
    ]


def other_ways(best: Best) -> list[Alternative]:
    """Ways to agree that lost."""
    return [
        Alternative(
            what=_name(other.estimate.sync),
            layout=other.estimate.layout,
            sync=other.estimate.sync,
            step_seconds=other.estimate.step_seconds.value,
            peak_bytes=other.estimate.peak_bytes.value,
            why=f"{best.learned_per_second / other.learned_per_second:.2f} x as long to the same"
            f" loss; links take {other.waiting:.0%} of a step",
        )
        for other in best.others
    ]


def _name(sync: Sync) -> str:
    if sync.by_engine:
        return "plain all-reduce"
    return _NAMES[sync.mode] + ("" if sync.compress == "none" else f" in {sync.compress}")


def _exchanging_plainly(best: Best, found: Fit) -> float:
    """Of a step of the same layout, if its replicas summed their gradients."""
    steps = best.found.steps.take(np.array([0]))
    engine = steps.engine.model_copy(update={"sync": Sync()})
    times = found.model(replace(steps, engine=engine)).times(steps.layouts, steps.batch)
    return float(times.data[0] / times.total[0])
