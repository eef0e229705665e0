"""What a run is to do, what it is expected to take, and what else was considered."""

from pydantic import Field, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.plans.checkpointing import Saving
from paceline.specs.plans.estimate import Alternative, Estimate
from paceline.specs.plans.faults import Faults
from paceline.specs.plans.layout import Layout
from paceline.specs.plans.sync import AnySync, default_sync


class Plan(Spec):
    """What `paceline plan` writes, `paceline run --plan` reads and every run folder keeps."""

    layout: Layout = Layout()
    sync: AnySync = Field(default_factory=default_sync)
    """How replicas agree."""
    saving: Saving = Saving()
    faults: Faults = Faults()
    nodes: PositiveInt | None = None
    """That it was made for; any number where unset."""
    devices_per_node: PositiveInt | None = None
    estimate: Estimate | None = None
    """What a step was expected to take, where the plan was made by Paceline."""
    rejected: tuple[Alternative, ...] = ()
    """Other layouts on the same nodes, and why they lost."""
