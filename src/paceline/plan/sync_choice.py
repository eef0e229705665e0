"""The synchronization mode of a plan, in words, and the reason for it."""

from dataclasses import replace

import numpy as np

from paceline.plan.calibration.calibrate import Fit
from paceline.plan.search.best_layout import Best
from paceline.specs.plans.estimate import Alternative
from paceline.specs.plans.sync import default_sync


def sync_reason(best: Best, found: Fit, *, asked: bool) -> str:
    """Return a sentence on the mode of a plan and the reason for it; empty without replicas."""
    if best.estimate.layout.replicas == 1:
        return ""
    sync = best.estimate.sync
    words = f"Replicas synchronize by {sync.words}"
    if not sync.by_engine:
        words += f" (--sync {sync.short()})"
    if asked:
        return f"{words}, as requested."
    if sync.by_engine:
        return f"{words}: links take {best.waiting:.0%} of it."
    plain = _plain_fraction(best, found)
    return f"{words}: with a plain all-reduce, links would take {plain:.0%} of a step."


def sync_remarks(best: Best) -> list[str]:
    """Return the assumptions behind the choice."""
    times = best.estimate.extra_samples
    if times == 1.0:
        return []
    return [
        f"assumed, not measured: this mode takes {times:.2f} x the samples of plain all-reduce to"
        " the same loss; the choice includes that, the steps and times shown do not"
    ]


def other_modes(best: Best) -> list[Alternative]:
    """Return the modes that lost."""
    return [
        Alternative(
            what=other.estimate.sync.title,
            layout=other.estimate.layout,
            sync=other.estimate.sync,
            step_seconds=other.estimate.step_seconds.value,
            peak_bytes=other.estimate.peak_bytes.value,
            why=f"{best.learned_per_second / other.learned_per_second:.2f} x as long to the same"
            f" loss; links take {other.waiting:.0%} of a step",
        )
        for other in best.others
    ]


def _plain_fraction(best: Best, found: Fit) -> float:
    """Return the communication fraction of a step of the same layout with plain all-reduce."""
    steps = best.found.steps.take(np.array([0]))
    engine = steps.engine.model_copy(update={"sync": default_sync()})
    times = found.model(replace(steps, engine=engine)).times(steps.layouts, steps.batch)
    return float(times.data[0] / times.total[0])
