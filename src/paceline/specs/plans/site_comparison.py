"""The same training at several sites, and at which price the choice between them turns."""

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.plans.estimate import TrainingCost
from paceline.specs.plans.layout import Layout


class SiteCost(Spec):
    """A training at one site, under one of its offers."""

    site: str
    spot: bool
    """Whether the owner may take nodes back."""
    nodes: PositiveInt
    layout: Layout
    cost: TrainingCost
    node_hours: PositiveFloat
    """Hours that are paid."""
    per_node_hour: NonNegativeFloat
    break_even_per_node_hour: float | None = None
    """Price of a node-hour at which this costs as much as the cheapest other; negative if it costs
    more even for nothing. None if there is no other."""
    break_even_interruptions: NonNegativeFloat | None = None
    """Interruptions per node and hour up to which spot nodes cost less than the same site's others;
    None if they never do, or always."""
    source: str = ""
    """Where the prices are from."""


class SiteComparison(Spec):
    """What a training costs at several sites, cheapest first."""

    model: str
    batch: PositiveInt
    currency: str
    rows: tuple[SiteCost, ...]
