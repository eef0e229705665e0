"""The deadline and the budget of a training, and the numbers of nodes that keep within them."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.plan.cost.node_kinds import first_nodes
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
                f"{given} was given, but not the length of the training",
                fix="add --steps N or --tokens N",
            )
        if self.budget is not None and self.cluster.prices is None:
            raise PacelineError(
                f"--budget {self.budget} was given, but not the price of the nodes",
                fix="add --price, or write per_node_hour into [prices] of the cluster's or the"
                " site's file",
            )

    def allowed(self, bests: Sequence[Best]) -> list[Best]:
        """Return those within the limits; if there are none, raise an error with the nearest."""
        allowed = [best for best in bests if self.keeps(best)]
        if not allowed:
            raise self._refusal(bests)
        return allowed

    def keeps(self, best: Best) -> bool:
        """Return whether a layout keeps within the limits."""
        if self.deadline_seconds is None and self.budget is None:
            return True
        cost = self._cost(best)
        in_time = self.deadline_seconds is None or cost.seconds.value <= self.deadline_seconds
        return in_time and (self.budget is None or _money(cost) <= self.budget)

    def _cost(self, best: Best) -> TrainingCost:
        assert self.length is not None, "limits are those of a whole training"
        there = first_nodes(self.cluster, best.nodes)
        return training_cost(best, there, self.length.steps_with(best.estimate.batch))

    def _refusal(self, bests: Sequence[Best]) -> PacelineError:
        costs = [self._cost(best) for best in bests]
        nearest = []
        if self.deadline_seconds is not None:
            at = min(range(len(bests)), key=lambda each: costs[each].seconds.value)
            takes = duration(costs[at].seconds.value)
            nearest.append(f"the fastest, {count(bests[at].nodes, 'node')}, takes {takes}")
        if self.budget is not None:
            at = min(range(len(bests)), key=lambda each: _money(costs[each]))
            price = f"{_money(costs[at]):,.2f}"
            nearest.append(f"the cheapest, {count(bests[at].nodes, 'node')}, costs {price}")
        return PacelineError(
            f"no number of nodes keeps within the limits: {'; '.join(nearest)}",
            fix="allow other nodes with --nodes, give a later --deadline or a larger --budget, or"
            " train for fewer steps",
        )


def _money(cost: TrainingCost) -> float:
    if cost.money is None:
        raise PacelineError(
            "--budget was given, but the electricity costs money and the power of the nodes is not"
            " known",
            fix="write watts into [device] and a [power] table into the cluster's file, or leave"
            " per_kwh out",
        )
    return cost.money
