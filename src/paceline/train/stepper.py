"""A training as it stands on the workers of one generation: what takes its steps."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from paceline.comm.groups import Groups
from paceline.data.batches import Batches
from paceline.data.loader import Batch
from paceline.parallel.arrange import arrange
from paceline.parallel.arranged import Arranged
from paceline.parallel.data_speeds import speeds_of_data_workers
from paceline.parallel.fitted_layout import everybody_has_all
from paceline.parallel.gradient_norm import clip
from paceline.parallel.step.loss_scaling import LossScaling
from paceline.parallel.whole_model import Whole
from paceline.specs import Faults, Layout, Sync
from paceline.sync.mode import Mode
from paceline.train.gradients.accumulation import Learning
from paceline.train.gradients.buffers import Buffers
from paceline.train.gradients.canonical_parts import learning
from paceline.train.gradients.learned import Learned
from paceline.train.gradients.sync_mode import agreeing
from paceline.train.monitor.monitor import Watching
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.state.training_state import TrainedState
from paceline.user.training import Training


class Stepper:
    """The model under a layout, its optimizer, and how its replicas agree."""

    def __init__(
        self,
        training: Training,
        layout: Layout,
        groups: Groups,
        telemetry: Telemetry,
        sync: Sync,
        faults: Faults,
        may_retire: Callable[[], bool] = lambda: False,
    ) -> None:
        sync.check(layout)
        self.training, self.layout, self.sync = training, layout, sync
        self._groups, self._telemetry = groups, telemetry
        self._clock = telemetry.clock
        self.batches = self._divided(first_step=0)
        share = self.batches.largest_share(min(training.batch, self.batches.order.samples))
        # Arranged before the optimizer is built: sharding replaces the parameters.
        self.arranged: Arranged = arrange(
            training,
            layout,
            groups,
            largest_share=share,
            sync=sync,
            clock=telemetry.clock,
        )
        self.model = self.arranged.model
        self.optimizer = training.optimizer(self.arranged.parameters())
        self.schedule = training.schedule(self.optimizer) if training.schedule else None
        self._scaling = LossScaling(layout, groups, replicas_differ=sync.replicas_differ)
        self.mode = self._agreeing()
        self._learning: Learning | None = None
        """How this worker learns from its shares, once batches are divided (`begin_at`)."""
        self._buffers = Buffers(self.model)
        self._faults, self._may_retire = faults, may_retire
        self.watching = self._watching()
        self._open = False
        """Whether a step has begun and not come to its end."""

    @property
    def keeps_state(self) -> bool:
        """Whether each worker holds all of the state, and any of them can go on with it: then
        others may leave or join without more ado."""
        return everybody_has_all(self.layout, self.sync)

    def rejoin(self, layout: Layout) -> None:
        """Stand on the workers of another generation, with the state as it is."""
        assert isinstance(self.arranged, Whole)
        self.layout = layout
        self.arranged.rejoin(layout)
        self.mode = self._agreeing()
        self.watching = self._watching()

    def begin_at(self, step: int) -> None:
        """Divide the batches after a step over the workers that there are now; all of them call
        this together."""
        self.batches = self._divided(first_step=step)
        self._learning = self._new_learning()

    def forward_and_backward(self, batch: Batch, step: int) -> Learned:
        """Leave the gradients of the mean over the global batch in the parameters."""
        self._clock.turn("forward")
        self._open = True
        self._buffers.keep()
        with self._clock.apart(self._waited):
            self.mode.before_forward(step)
        assert self._learning is not None
        learn = partial(self._learning.learn, self.arranged, batch, step - 1)
        return self.watching.learned(step, self.arranged, learn)

    def update(self, step: int) -> None:
        """Synchronise, clip, update the weights, and the learning rate."""
        self._clock.turn("optimizer")
        with self._clock.apart(self._waited):
            self.mode.after_backward(step)
            self._scaling.unscale(self.optimizer)
            if self.training.clip is not None:
                clip(self.arranged, self.training.clip, self.watching.squared_norm)
            if self.mode.before_step(step):
                self._scaling.step(self.optimizer)
            self.optimizer.zero_grad()
            if self.schedule is not None:
                self.schedule.step()
            self.mode.after_step(step)
        self._open = False
        self._clock.turn("other")

    def take_back(self) -> None:
        """Forget what a step has left behind that did not come to its end."""
        if not self._open:
            return
        self._open = False
        self.optimizer.zero_grad()
        self._buffers.put_back()

    def state(self) -> TrainedState:
        """All that the training needs to go on."""
        return TrainedState(self.arranged, self.optimizer, self.schedule, self._scaling, self.mode)

    def let_go(self) -> None:
        """Hold no group any more; the state stays."""
        with suppress(RuntimeError):  # what was under way in a broken group
            self.watching.close()
        self.mode.bound.lane.close()
        self.arranged.close()

    def close(self) -> None:
        """Let go of what uses the process groups, before they are given up.

        Were it the last to hold a group, the group would be taken apart while Python's lock is
        held, and wait for its own threads, which may be waiting for that lock.
        """
        self.mode.close()
        self.give_up()

    def give_up(self) -> None:
        """The same without a goodbye to the others, who are gone or have given up, too."""
        self.let_go()
        del self.arranged

    def _waited(self) -> float:
        """The seconds that this worker has waited for exchanges which go on beside training."""
        return self.mode.bound.lane.waited_seconds

    def _watching(self) -> Watching:
        return Watching(
            self.state,
            self.layout,
            self._groups,
            self._telemetry,
            self._faults,
            self.training,
            self._buffers.put_back,
            self._may_retire,
        )

    def _agreeing(self) -> Mode:
        return agreeing(
            self.sync,
            self.layout,
            self._groups,
            self.arranged,
            self.optimizer,
            self._telemetry.agreed,
        )

    def _divided(self, *, first_step: int) -> Batches:
        training, layout, placement = self.training, self.layout, self._groups.placement
        return Batches(
            order=training.sample_order(),
            batch=training.batch,
            steps=training.total_steps,
            workers=layout.data_workers,
            rank=layout.data_rank(placement.rank),
            speeds=speeds_of_data_workers(placement, layout),
            seed=training.seed,
            first_step=first_step,
            parts=self.sync.parts if self.sync.mode == "canonical" else None,
        )

    def _new_learning(self) -> Learning:
        return learning(
            self.training, self.layout, self._groups, self.mode, self._scaling, self.batches
        )
