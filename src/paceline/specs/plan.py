"""How a training is laid out over devices."""

from pydantic import Field

from paceline.specs.base import Spec


class Layout(Spec):
    """How many times the model stands on the cluster, and how it is divided."""

    replicas: int = Field(default=1, ge=1)
    """Copies of the whole model, each on its own share of the global batch."""

    @property
    def workers(self) -> int:
        """Processes, one per device, that this layout needs."""
        return self.replicas


class Plan(Spec):
    """What a run is to do: what `paceline run --plan` reads and every run folder keeps."""

    layout: Layout = Layout()
