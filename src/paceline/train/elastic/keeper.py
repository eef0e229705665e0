"""A training's state outside of the training: in checkpoints and in the memory of its workers."""

from functools import cached_property

from paceline.checkpoints.manifest import Manifest
from paceline.membership.service import Begin
from paceline.specs import Source
from paceline.train.elastic.agent import Gathering
from paceline.train.elastic.peer_copies import Copies
from paceline.train.elastic.recovery import Recovery, data_facts, snapshot_of
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.stepper import Stepper
from paceline.user.training import Training


class Keeper:
    """Saves and copies the state of one worker's training, and takes it up again."""

    def __init__(
        self,
        training: Training,
        agent: Gathering | None,
        telemetry: Telemetry,
        recovery: Recovery | None,
    ) -> None:
        self._training, self._agent, self._telemetry = training, agent, telemetry
        self.recovery = recovery
        """Checkpoints and the ledger; None without a run's folder."""
        self.metrics: dict[str, float] = {}
        """Figures of the last evaluation."""

    def entering(self, stepper: Stepper, step: int, ids: tuple[int, ...]) -> None:
        """A step is about to be taken on these samples: told before anybody can learn from them,
        since what did not come to an update is taken back."""
        if self.recovery is not None:
            epoch = (step - 1) // stepper.batches.steps_per_epoch
            self.recovery.entering(step, epoch, ids)

    def stepped(self, stepper: Stepper, step: int) -> None:
        """A step is done: save or copy the state if it is time to."""
        if self.recovery is not None and self.recovery.is_due(step, self._telemetry.progress):
            self.save(stepper)
        if self._copies and self._copies.is_due(step):
            self._telemetry.report_all()
            with self._telemetry.clock.during("checkpoint"):
                stepper.mode.drain()
                progress, state = self._telemetry.progress, stepper.state()
                self._copies.copy(snapshot_of(state, progress, self._data, self.metrics))

    def save(self, stepper: Stepper) -> None:
        """Begin to save a checkpoint; all workers call this together."""
        if self.recovery is not None:
            self._telemetry.report_all()
            with self._telemetry.clock.during("checkpoint"):
                stepper.mode.drain()
                progress = self._telemetry.progress
                self.recovery.save(stepper.state(), progress, self._data, self.metrics)

    def begin(self, stepper: Stepper, done: int) -> None:
        """The workers of a generation go on after a step."""
        if self.recovery is not None:
            self.recovery.open_ledger(stepper.layout, stepper.batches)
        agent = self._agent
        if self._copies and agent and agent.roster:
            self._copies.begin(agent.roster, agent.name, done, regrouped=agent.regrouped)

    def regrouped(self) -> None:
        """Another generation has begun: what the one before was about to save does not count."""
        if self.recovery is not None:
            self.recovery.regrouped()

    def from_checkpoint(self, stepper: Stepper) -> int:
        """Take up the newest checkpoint; its step, 0 where there is none."""
        if self.recovery is None:
            return 0
        manifest = self.recovery.restore(stepper.state(), self._data)
        if manifest is None:
            self._telemetry.resumed(0, 0, 0.0)
            return 0
        return self._resumed(manifest)

    def from_anywhere(self, stepper: Stepper, begin: Begin) -> tuple[int, Source]:
        """Take up the newest state that there is outside of the training; its step, and where it
        was. All workers call this together."""
        agent = self._agent
        if self._copies and agent and self.recovery is not None:
            held = {name: facts["holdings"] for name, facts in begin.facts.items()}
            manifest = self._copies.restore(
                stepper.state().restore,
                begin.roster,
                agent.name,
                held,
                self.recovery.all_agree,
                oldest_step=self.recovery.newest_step(),
            )
            if manifest is not None:
                return self._resumed(manifest), "peers"
        done = self.from_checkpoint(stepper)
        return done, "checkpoint" if done else "beginning"

    def _resumed(self, manifest: Manifest) -> int:
        self.metrics = manifest.metrics
        self._telemetry.resumed(manifest.step, manifest.samples, manifest.seconds)
        return manifest.step

    @property
    def _copies(self) -> Copies | None:
        return self._agent.copies if self._agent else None

    @cached_property
    def _data(self) -> dict[str, int]:
        return data_facts(self._training)  # an order of many shards takes long to ask
