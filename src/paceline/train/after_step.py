"""What follows a step: validation, the best model, and the checkpoint."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from paceline.comm.groups import Groups
from paceline.comm.host_copies import state_copies
from paceline.train.elastic.checkpointing import Checkpointing
from paceline.train.export.export import LARGEST_FILE_BYTES, Export
from paceline.train.gradients.evaluation import Evaluation, evaluate
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.state.kept_objects import KeptObjects
from paceline.train.state.validator import Validator
from paceline.train.stepper import Stepper
from paceline.user.training import Training
from paceline.user.validation import Metric


class AfterStep:
    """Evaluates and saves a worker's training. All workers call this together."""

    def __init__(
        self,
        training: Training,
        groups: Groups,
        telemetry: Telemetry,
        checkpointing: Checkpointing | None,
        kept: KeptObjects,
        export: Callable[[Export], None],
        *,
        own_loop: bool,
    ) -> None:
        """`export`: write the current weights to a file; `own_loop`: whether the user's code runs
        between the steps, and may change weights."""
        self._own_loop = own_loop
        self._training, self._groups, self._telemetry = training, groups, telemetry
        self._checkpointing, self._kept, self._export = checkpointing, kept, export
        self.validator = Validator(training.validation) if training.validation else None
        """None if the training has no validation."""
        if self.validator is not None:
            kept.keep_with_weights("validation", self.validator)
        self._found_best = False
        """Whether a better model waits to be saved."""
        self.unsaved = False
        """Whether a checkpoint may be due, but waits for the user's loop."""

    @property
    def stops_early(self) -> str | None:
        """Why training ends before its last step; None if it does not."""
        validator = self.validator
        return validator.reason if validator is not None and validator.stops else None

    def is_due(self, stepper: Stepper, step: int) -> bool:
        """Return whether a validation after a step is still due."""
        if self.validator is None:
            return False
        batches = stepper.batches
        return self.validator.is_due(step, batches.epochs_ended(step), batches.steps)

    def run(self, stepper: Stepper, step: int) -> None:
        """Validate and save, as far as that is due after a step."""
        if self.is_due(stepper, step):
            self._validate(stepper, step)
        self.unsaved = True
        if not self._kept.any_of_user:  # the loop may update its objects after the step
            self.save(stepper, step)

    def save(self, stepper: Stepper, step: int) -> None:
        """Save the state after a step, if that is due and was not done."""
        if not self.unsaved:
            return
        self.unsaved = False
        if self._checkpointing is not None:
            if self._found_best:
                self._checkpointing.save_best(stepper)
            self._checkpointing.after_step(stepper, step)
            if self._own_loop:
                state_copies.let_end()
        self._found_best = False

    def evaluated(
        self, stepper: Stepper, data: "Dataset[Any]", metrics: Mapping[str, Metric]
    ) -> Evaluation:
        """Evaluate the model on a dataset."""
        with stepper.shared_weights():
            return evaluate(
                stepper.parallel_model,
                self._training,
                data,
                metrics,
                stepper.layout,
                self._groups,
            )

    def record(self, step: int, found: Evaluation) -> None:
        """Record an evaluation in events and checkpoints."""
        if self._checkpointing is not None:
            self._checkpointing.metrics = {"loss": found.loss, **found.metrics}
        self._telemetry.evaluated(step, found.samples, found.loss, found.metrics)

    def _validate(self, stepper: Stepper, step: int) -> None:
        assert self.validator is not None
        validation = self.validator.validation
        with self._telemetry.clock.during("other"):
            found = self.evaluated(stepper, validation.data, validation.metrics)
        self.record(step, found)
        if self.validator.take(step, {"loss": found.loss, **found.metrics}):
            self._found_best = True
            default = None if self._checkpointing is None else self._checkpointing.best_file
            path = default if validation.export is None else Path(validation.export)
            if path is not None:
                self._export(Export(path, "safetensors", LARGEST_FILE_BYTES))
