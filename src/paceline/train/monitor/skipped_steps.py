"""Steps whose update an accelerator skipped, because the gradient was not finite.

The workers learn of one when they read its window, all at the same step. One such step may be a
hardware error or a bad sample: it is reported, and training continues with the weights before it.
Two in a row are the training's own fault, and the run ends.
"""

from collections.abc import Callable
from typing import Literal

from paceline.comm.groups import Groups
from paceline.specs import Refused
from paceline.train.monitor.non_finite import ranks_where
from paceline.train.monitor.step_windows import Progress, Window


class SkippedSteps:
    """The skipped steps of a run. All workers read the same windows and decide alike."""

    def __init__(self, groups: Groups, write_once: Callable[..., None]) -> None:
        """`write_once`: write an event on worker 0."""
        self._groups, self._write_once = groups, write_once
        self._last = 0
        """The last step that was skipped."""

    def endured(self, progress: Progress, window: Window) -> list[float]:
        """Return the mean losses of the window's steps, where a skipped one has the loss before.

        The second of two in a row stays as it is.
        """
        means = window.means(progress.loss)
        for offset in window.non_finite(means):
            step = progress.steps + offset + 1
            if window.steps.skipped[offset] is None or step == 1 or self._last == step - 1:
                break
            self._last = step
            means[offset] = means[offset - 1] if offset else progress.loss
            self._report(step, *what_was_bad(window, offset, self._groups))
        return means

    def _report(self, step: int, what: str, ranks: list[int]) -> None:
        workers = "worker" if len(ranks) == 1 else "workers"
        of = f" on {workers} {', '.join(map(str, ranks))}" if ranks else ""
        self._write_once(
            Refused,
            step=step,
            ranks=ranks,
            what="not finite",
            message=f"the {what} was not finite{of}: the update was skipped, and the step's samples"
            " were not learned from",
        )


def what_was_bad(
    window: Window, offset: int, groups: Groups
) -> tuple[Literal["loss", "gradient"], list[int]]:
    """Return what was not finite in a step, and the ranks whose loss it was. All ranks call it."""
    own = not bool(window.losses[offset].isfinite().all())
    ranks = ranks_where(own, groups)
    return "loss" if own or ranks else "gradient", ranks
