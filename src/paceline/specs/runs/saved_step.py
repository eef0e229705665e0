"""The checkpoint of another run that a run starts from."""

from pydantic import PositiveInt

from paceline.specs.base import Spec


class SavedStep(Spec):
    """A run and the step of one of its checkpoints, which is only read."""

    run: str
    """Path or URL of the run."""
    checkpoints: str
    """Path or URL of its checkpoints."""
    step: PositiveInt

    def __str__(self) -> str:
        """Return it as commands take it."""
        return f"{self.run}@{self.step}"
