"""What the nodes of a cluster cost."""

from typing import Annotated

from pydantic import Field

from paceline.specs.base import FiniteSpec

MOST_MONEY = 1e15
_Amount = Annotated[float, Field(ge=0, le=MOST_MONEY)]


class Prices(FiniteSpec):
    """Prices of a cluster's nodes, all in one currency."""

    currency: str = ""
    """Its name beside amounts, such as EUR."""
    per_node_hour: _Amount
    """One hour of a node with all its devices."""
    per_kwh: _Amount = 0.0
    """Electricity, if it is paid beside the hours."""
    power_usage_effectiveness: float = Field(default=1.0, ge=1)
    """Power of the whole site over that of its nodes: cooling and losses."""
    spot_per_node_hour: _Amount | None = None
    """The same hour, if the owner may take the node back at any time; None: not on offer."""
    interruptions_per_node_hour: _Amount = 0.0
    """How often the owner does."""
    replacement_seconds: _Amount = 0.0
    """From such an interruption until another node is there."""
    source: str = ""
    """Where the figures are from."""

    def of_hours(self, node_hours: float) -> float:
        """Return the price of hours of nodes."""
        return self.per_node_hour * node_hours

    def of_electricity(self, kilowatt_hours: float) -> float:
        """Return the price of what the nodes draw, and of what the site needs for it."""
        return self.per_kwh * self.power_usage_effectiveness * kilowatt_hours
