"""The global batch as a step function of position, and the way between steps and positions."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter


@dataclass(frozen=True)
class _Stage:
    """Steps of one batch, from a step and its position on."""

    step: int
    position: int
    batch: int
    epoch_samples: int

    @property
    def _steps_of_epoch(self) -> int:
        return -(-self.epoch_samples // self.batch)

    @property
    def _first_end(self) -> tuple[int, int]:
        """The end of the epoch that the stage begins in: steps after its begin, and position."""
        end = (self.position // self.epoch_samples + 1) * self.epoch_samples
        return -(-(end - self.position) // self.batch), end

    def position_of(self, step: int) -> int:
        """Return where a step begins."""
        steps, (first_steps, first_end) = step - self.step, self._first_end
        if steps < first_steps:
            return self.position + steps * self.batch
        epochs, steps = divmod(steps - first_steps, self._steps_of_epoch)
        return first_end + epochs * self.epoch_samples + steps * self.batch

    def step_from(self, position: int) -> int:
        """Return the first step that begins at this position or later."""
        first_steps, first_end = self._first_end
        if position <= first_end:
            return self.step + min(first_steps, -(-(position - self.position) // self.batch))
        epochs, offset = divmod(position - first_end, self.epoch_samples)
        return self.step + first_steps + epochs * self._steps_of_epoch - (-offset // self.batch)


@dataclass(frozen=True)
class BatchStages:
    """The batch of every step.

    A position is a number of samples trained on, counted over all epochs. A stage begins with the
    first step at its position or after it, so every step is whole. The last batch of an epoch has
    the remaining samples.
    """

    epoch_samples: int
    plan: tuple[tuple[int, int], ...]
    """Positions, rising from 0, and the batch from there on."""

    @classmethod
    def constant(cls, batch: int, epoch_samples: int) -> "BatchStages":
        """Return stages of a batch that never changes."""
        return cls(epoch_samples, ((0, batch),))

    @property
    def smallest(self) -> int:
        """The smallest batch of all stages."""
        return min(batch for _, batch in self.plan)

    @property
    def largest(self) -> int:
        """The largest batch of all stages."""
        return max(batch for _, batch in self.plan)

    def batch(self, step: int) -> int:
        """Return the batch of a step's stage; steps count from 0."""
        return self._stage_of(step).batch

    def position(self, step: int) -> int:
        """Return the number of samples before a step."""
        return self._stage_of(step).position_of(step)

    def step_from(self, position: int) -> int:
        """Return the first step that begins at this position or later."""
        for stage, after in zip(self._stages, (*self._stages[1:], None), strict=True):
            if after is None or position <= after.position:
                return stage.step_from(position)
        raise AssertionError

    def steps_done(self, position: int) -> int:
        """Return the number of whole steps before a position."""
        step = self.step_from(position)
        return step if self.position(step) == position else step - 1

    def extent(self, step: int) -> tuple[int, int, int]:
        """Return a step's epoch, its begin in the epoch, and its number of samples."""
        stage = self._stage_of(step)
        epoch, begin = divmod(stage.position_of(step), self.epoch_samples)
        return epoch, begin, min(stage.batch, self.epoch_samples - begin)

    def begun(self, position: int) -> tuple[tuple[int, int], ...]:
        """Return the plan up to a position: the stages that a step before it belongs to."""
        return tuple(
            (each.position, each.batch) for each in self._stages if each.position < position
        )

    def changed(self, position: int, later: tuple[tuple[int, int], ...]) -> "BatchStages":
        """Return these stages with another plan from a position on, at which a step begins; at 0,
        the other plan is all there is."""
        return BatchStages(self.epoch_samples, (*self.begun(position), *later))

    def spans(self) -> Iterator[tuple[int, int | None, int]]:
        """Yield begin, end and batch of each stage; the last has no end."""
        for stage, after in zip(self._stages, (*self._stages[1:], None), strict=True):
            yield stage.position, None if after is None else after.position, stage.batch

    @cached_property
    def _stages(self) -> tuple[_Stage, ...]:
        (_, first), *others = self.plan
        stages = [_Stage(0, 0, first, self.epoch_samples)]
        for planned, batch in others:
            before = stages[-1]
            step = before.step_from(max(planned, before.position))
            if step == before.step:  # a stage without a step
                stages.pop()
            begin = before.position_of(step)
            if not stages or stages[-1].batch != batch:
                stages.append(_Stage(step, begin, batch, self.epoch_samples))
        return tuple(stages)

    def _stage_of(self, step: int) -> _Stage:
        stages = self._stages
        if len(stages) == 1:
            return stages[0]
        return stages[bisect_right(stages, step, key=attrgetter("step")) - 1]
