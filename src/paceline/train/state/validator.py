"""The progress of a training's validation: the best result so far, and whether to stop early."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.user.validation import Validation


class Validator:
    """When to validate, the best result, and how many validations in a row were not better.

    All workers see the same results, so they decide alike. Checkpoints hold this state.
    """

    def __init__(self, validation: Validation) -> None:
        self.validation = validation
        self.last = 0
        """The last validated step."""
        self.best: float | None = None
        self.best_step = 0
        self.waited = 0

    @property
    def stops(self) -> bool:
        """Whether training ends early."""
        patience = self.validation.patience
        return patience is not None and self.waited >= patience

    @property
    def reason(self) -> str:
        """Why training ends early."""
        metric = self.validation.compared.metric
        return f"no better {metric} in {self.waited} validations after step {self.best_step}"

    def is_due(self, step: int, epochs_ended: int, last_step: int) -> bool:
        """Return whether to validate after a step, the same on all workers."""
        due = step == last_step or self.validation.is_due(step, epochs_ended)
        return step > self.last and due

    def take(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Record a validation; return whether it is the best so far."""
        self.last = step
        sense, metric = self.validation.compared
        found = metrics[metric]
        sign = 1 if sense == "max" else -1
        before = -math.inf if self.best is None else sign * self.best
        if sign * found > before:  # never if it is NaN
            self.best, self.best_step, self.waited = found, step, 0
            return True
        self.waited += 1
        return False

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "last": self.last,
            "best": self.best,
            "best_step": self.best_step,
            "waited": self.waited,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state."""
        self.last, self.best = state["last"], state["best"]
        self.best_step, self.waited = state["best_step"], state["waited"]

    def agree(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Adopt the survivors' common state after a regroup; all workers call this alike.

        A validation that was interrupted may be complete on some of them: it is repeated.
        """
        trained = [each["validation"] for each in reports if each["steps"] and each["validation"]]
        if trained:
            self.load_state_dict(min(trained, key=lambda each: each["last"]))
