"""A plan: the settings of a run, its prediction and the rejected alternatives."""

from pydantic import Field, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.plans.estimate import Alternative, Estimate
from paceline.specs.plans.fault_tolerance import Faults
from paceline.specs.plans.layout import Layout
from paceline.specs.plans.saving import Saving
from paceline.specs.plans.sync import AnySync, default_sync


class Plan(Spec):
    """The plan that `paceline plan` writes, `paceline run --plan` reads and every run folder
    holds."""

    layout: Layout = Layout()
    sync: AnySync = Field(default_factory=default_sync)
    """Synchronization mode of the replicas."""
    saving: Saving = Saving()
    faults: Faults = Faults()
    nodes: PositiveInt | None = None
    """Nodes that it was made for; None: any number."""
    devices_per_node: PositiveInt | None = None
    estimate: Estimate | None = None
    """The prediction for a step; None if Paceline did not make the plan."""
    rejected: tuple[Alternative, ...] = ()
    """Other layouts on the same nodes, and why they lost."""
