"""The batch as a variable of the search: which one, on how many nodes, to the same loss."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from paceline.learning.rules import batch_rule
from paceline.plan.cost.node_kinds import first_nodes
from paceline.plan.limits import Limits
from paceline.plan.search.best_layout import Best
from paceline.plan.search.infeasible import Infeasible
from paceline.plan.search.node_counts import Goal, choose, goal_cost, wasted_beyond
from paceline.plan.training_cost import training_cost
from paceline.plan.training_length import TrainingLength
from paceline.specs import BatchChoice, BatchOption, Cluster, CriticalBatch, PacelineError
from paceline.specs.plans.batch_choice import LargerBatch, OptimizerRules

FACTORS = [2 ** (each / 4) for each in range(1, 25)]
"""How much larger or smaller the critical batch might be, to see whether the choice holds."""


@dataclass(frozen=True)
class BatchSearch:
    """The best layouts for each batch, on each number of nodes, for a training of known length."""

    by_batch: Sequence[Sequence[Best]]
    goal: Goal
    limits: Limits

    @cached_property
    def frontier(self) -> list[Best]:
        """For each number of nodes, the layout with the batch that suits the goal best."""
        by_nodes: dict[int, list[Best]] = {}
        for bests in self.by_batch:
            for best in self._to_the_loss(bests):
                by_nodes.setdefault(best.nodes, []).append(best)
        return [
            min(by_nodes[nodes], key=lambda best: goal_cost(best, self.goal, self.limits.cluster))
            for nodes in sorted(by_nodes)
        ]

    @cached_property
    def chosen(self) -> Best:
        """The best batch, number of nodes and layout."""
        allowed = self.limits.allowed(self.frontier)
        return choose(self.frontier, allowed, self.goal, self.limits.cluster)

    def said(self) -> BatchChoice:
        """Return what each batch takes, and for which critical batches the choice is the same."""
        knee = wasted_beyond(self.frontier)
        return BatchChoice(
            own=self._length.batch,
            critical=self._critical,
            options=tuple(self._option(bests) for bests in self.by_batch),
            same_from=self._end([1 / each for each in FACTORS]),
            same_to=self._end(FACTORS),
            rules=self._rules(),
            wasted_beyond=next(
                (each.estimate.batch for each in self.frontier if each.nodes == knee), None
            ),
        )

    @property
    def _length(self) -> TrainingLength:
        assert self.limits.length is not None, "batches are compared to the end of a training"
        return self.limits.length

    @property
    def _critical(self) -> CriticalBatch:
        assert self._length.critical is not None, "batches are searched by the critical one"
        return self._length.critical

    def _rules(self) -> OptimizerRules:
        """Return what the chosen batch changes in optimizers tuned at the training's own."""
        at = self.chosen.estimate.batch, self._length.batch, self._critical.at_hand
        return OptimizerRules(adam=batch_rule("square root", *at), sgd=batch_rule("linear", *at))

    def _option(self, bests: Sequence[Best]) -> BatchOption:
        batch, cluster = bests[0].estimate.batch, self.limits.cluster
        best = self.chosen
        if batch != best.estimate.batch:
            weighed = self._to_the_loss(bests)
            best = choose(weighed, weighed, self.goal, cluster)
        there = first_nodes(cluster, best.nodes)
        return BatchOption(
            batch=batch,
            nodes=best.nodes,
            layout=best.estimate.layout,
            step_seconds=best.estimate.step_seconds.value,
            samples_times=self._length.samples_times(batch),
            cost=training_cost(best, there, self._length.steps_with(batch)),
        )

    def _end(self, factors: Sequence[float]) -> float | None:
        """Return the last critical batch that has the same choice; None without end."""
        same = critical = self._critical.at_hand
        for factor in factors:
            limits = replace(self.limits, length=self._length.if_critical_were(factor))
            other = None
            with suppress(PacelineError):  # a limit that no number of nodes keeps then
                other = replace(self, limits=limits).chosen
            if other is None or _what(other) != _what(self.chosen):
                return same
            same = factor * critical
        return None

    def _to_the_loss(self, bests: Sequence[Best]) -> list[Best]:
        """Return layouts of one batch with the samples that it needs to the training's loss."""
        times = self._length.samples_times(bests[0].estimate.batch)
        return [replace(each, samples_times=times) for each in bests]


def twice_the_batch(
    best: Best,
    length: TrainingLength,
    cluster: Cluster,
    best_with: Callable[[int], Best],
) -> LargerBatch | None:
    """Return what twice the batch of a plan takes to the same loss; None if it has no layout.

    `cluster`: the plan's nodes; `best_with`: searches there for a batch.
    """
    own = best.estimate.batch
    batch = 2 * own
    try:
        larger = best_with(batch)
    except Infeasible:
        return None
    return LargerBatch(
        batch=batch,
        samples_times=length.samples_times(batch) / length.samples_times(own),
        layout=larger.estimate.layout,
        step_seconds=larger.estimate.step_seconds.value,
        cost=training_cost(larger, cluster, length.steps_with(batch)),
    )


def _what(best: Best) -> tuple[int, int]:
    return best.nodes, best.estimate.batch
