"""The same training at several sites: time and money, and where they break even."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.plan.inputs import PlanRequest
from paceline.plan.outlook.spot_nodes import spot_cost
from paceline.plan.planner import Planned, make_plan
from paceline.plan.training_cost import TooManyFailures
from paceline.specs import PacelineError, Prices, TrainingCost
from paceline.specs.plans.site_comparison import SiteComparison, SiteCost

MOST_INTERRUPTIONS_PER_NODE_HOUR = 60.0
"""One a minute: beyond, nothing is trained."""
FEWEST_INTERRUPTIONS_PER_NODE_HOUR = 1e-9
_HALVINGS = 60


@dataclass(frozen=True)
class OfferedSite:
    """A site as one of several to choose from."""

    name: str
    prices: Prices
    cluster: Path | None = None
    device: str | None = None
    nodes: tuple[int, ...] | None = None


def compare(
    request: PlanRequest, sites: Sequence[OfferedSite], advance: Callable[[float], None]
) -> SiteComparison:
    """Plan the training at each site, and return what it costs under each offer."""
    currencies = {site.prices.currency for site in sites}
    if len(currencies) > 1:
        raise PacelineError(
            f"the sites' prices are in {' and '.join(sorted(each or '?' for each in currencies))}",
            fix="convert them into one currency",
        )
    rows: list[SiteCost] = []
    for number, site in enumerate(sites):
        planned = make_plan(
            replace(
                request,
                cluster=site.cluster,
                device=site.device,
                nodes=site.nodes,
                prices=site.prices,
            )
        )
        rows += offers(site.name, site.prices, planned)
        advance((number + 1) / len(sites))
    rows.sort(key=lambda row: row.cost.money or 0.0)
    return SiteComparison(
        model=planned.answer.model,
        batch=planned.answer.batch,
        currency=currencies.pop(),
        rows=tuple(_with_break_even(row, rows) for row in rows),
    )


def offers(site: str, prices: Prices, planned: Planned) -> list[SiteCost]:
    """Return the rows of a site: its nodes for good, and its spot nodes if it has some."""
    cost = planned.answer.training
    if cost is None:
        raise PacelineError(
            "sites are compared by what a whole training costs", fix="add --steps N or --tokens N"
        )
    if cost.money is None:
        raise PacelineError(
            f"{site} charges for electricity, but the power of its devices is not known",
            fix="write watts into [device] of its cluster file, or leave per_kwh out",
        )

    def row(cost: TrainingCost, per_node_hour: float, *, spot: bool) -> SiteCost:
        return SiteCost(
            site=site,
            spot=spot,
            nodes=planned.answer.nodes,
            layout=planned.answer.estimate.layout,
            cost=cost,
            node_hours=cost.device_hours / planned.answer.devices_per_node,
            per_node_hour=per_node_hour,
            source=prices.source,
        )

    found = [row(cost, prices.per_node_hour, spot=False)]
    per_spot_hour, rate = prices.spot_per_node_hour, prices.interruptions_per_node_hour
    if per_spot_hour is not None:
        spot = row(_spot_cost(planned, prices, rate), per_spot_hour, spot=True)
        most = _most_interruptions(planned, prices, cost.money)
        found.append(spot.model_copy(update={"break_even_interruptions": most}))
    return found


def _spot_cost(planned: Planned, prices: Prices, per_node_hour: float) -> TrainingCost:
    assert planned.answer.training is not None
    steps = planned.answer.training.steps
    return spot_cost(planned.best, planned.cluster, steps, prices, per_node_hour)


def _most_interruptions(planned: Planned, prices: Prices, money: float) -> float | None:
    """Return how many interruptions per node and hour make spot nodes cost this much."""

    def is_cheaper(per_node_hour: float) -> bool:
        try:
            found = _spot_cost(planned, prices, per_node_hour).money
        except TooManyFailures:
            return False
        return found is not None and found < money

    low, high = FEWEST_INTERRUPTIONS_PER_NODE_HOUR, MOST_INTERRUPTIONS_PER_NODE_HOUR
    if not is_cheaper(low) or is_cheaper(high):
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_cheaper(middle) else (low, middle)
    return low


def _with_break_even(row: SiteCost, rows: Sequence[SiteCost]) -> SiteCost:
    """Add the price of a node-hour at which the row costs as much as the cheapest other one."""
    others = [other.cost.money or 0.0 for other in rows if other is not row]
    if not others:
        return row
    beside = (row.cost.money or 0.0) - row.per_node_hour * row.node_hours
    price = (min(others) - beside) / row.node_hours
    return row.model_copy(update={"break_even_per_node_hour": price})
