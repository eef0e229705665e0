"""The deadline and the budget of a training, and the numbers of nodes that keep within them."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.plan.search.best_layout import Best
from paceline.plan.training_cost import training_cost
from paceline.plan.training_length import TrainingLength
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.plans.estimate import TrainingCost
from paceline.specs.units import count, duration


@dataclass(frozen=True)
class Limits:
    """Limits of a training on a cluster."""

    cluster: Cluster
    length: TrainingLength | None = None
    deadline_seconds: float | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        if self.deadline_seconds is None and self.budget is None:
            return
        if self.length is None:
            given = "--deadline" if self.budget is None else f"--budget {self.budget}"
            raise PacelineError(
                f"{given} was given, but not the length of the training", fix="add --steps N"
            )
        if self.budget is not None and self.cluster.prices is None:
            raise PacelineError(
                f"--budget {self.budget} was given, but not the price of the nodes",
                fix="add --price, or write per_node_hour into [prices] of the cluster's or the"
                " site's file",
            )

    def allowed(self, bests: Sequence[Best]) -> list[Best]:
        """Return those within the limits; if there are none, raise an error with the nearest."""
        length = self.length
        if length is None or (self.deadline_seconds is None and self.budget is None):
            return list(bests)
        costs = [self._cost(best, length.steps_with(best.estimate.batch)) for best in bests]
        allowed = [
            best for best, cost in zip(bests, costs, strict=True) if self._within_limits(cost)
        ]
        if not allowed:
            raise self._refusal(bests, costs)
        return allowed

    def _cost(self, best: Best, steps: int) -> TrainingCost:
        there = self.cluster.model_copy(update={"nodes": best.nodes})
        return training_cost(best, there, steps)

    def _within_limits(self, cost: TrainingCost) -> bool:
        in_time = self.deadline_seconds is None or cost.seconds.value <= self.deadline_seconds
        return in_time and (self.budget is None or (cost.money or 0.0) <= self.budget)

    def _refusal(self, bests: Sequence[Best], costs: Sequence[TrainingCost]) -> PacelineError:
        nearest = []
        if self.deadline_seconds is not None:
            at = min(range(len(bests)), key=lambda each: costs[each].seconds.value)
            takes = duration(costs[at].seconds.value)
            nearest.append(f"the fastest, {count(bests[at].nodes, 'node')}, takes {takes}")
        if self.budget is not None:
            at = min(range(len(bests)), key=lambda each: costs[each].money or 0.0)
            price = f"{costs[at].money or 0.0:,.2f}"
            nearest.append(f"the cheapest, {count(bests[at].nodes, 'node')}, costs {price}")
        return PacelineError(
            f"no number of nodes keeps within the limits: {'; '.join(nearest)}",
            fix="allow other nodes with --nodes, give a later --deadline or a larger --budget, or"
            " train for fewer steps",
        )
