"""The batch as a variable of the search: which one, on how many nodes, to the same loss."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from paceline.plan.limits import Limits
from paceline.plan.search.best_layout import Best
from paceline.plan.search.node_counts import Goal, choose, goal_cost, wasted_beyond
from paceline.plan.training_cost import training_cost
from paceline.plan.training_length import TrainingLength
from paceline.specs import BatchChoice, BatchOption, Cluster, PacelineError

FACTORS = [2 ** (each / 4) for each in range(1, 25)]
"""How much larger or smaller the critical batch might be, to see whether the choice holds."""


@dataclass(frozen=True)
class BatchSearch:
    """The best layouts for each batch, on each number of nodes."""

    by_batch: Sequence[Sequence[Best]]
    goal: Goal
    cluster: Cluster
    limits: Limits

    def frontier(self, length: TrainingLength) -> list[Best]:
        """Return for each number of nodes the layout with the batch that suits the goal best."""
        by_nodes: dict[int, list[Best]] = {}
        for bests in self.by_batch:
            for best in _to_the_loss(bests, length):
                by_nodes.setdefault(best.nodes, []).append(best)
        return [
            min(by_nodes[nodes], key=lambda best: goal_cost(best, self.goal, self.cluster))
            for nodes in sorted(by_nodes)
        ]

    def chosen(self, length: TrainingLength) -> Best:
        """Return the best batch, number of nodes and layout."""
        frontier = self.frontier(length)
        limits = replace(self.limits, length=length)
        return choose(frontier, limits.allowed(frontier), self.goal, self.cluster)

    def said(self, length: TrainingLength) -> BatchChoice:
        """Return what each batch takes, and for which critical batches the choice is the same."""
        assert length.critical is not None, "batches are searched by the critical one"
        chosen = self.chosen(length)
        frontier = self.frontier(length)
        knee = wasted_beyond(frontier)
        return BatchChoice(
            own=length.batch,
            critical=length.critical,
            options=tuple(
                self._option(
                    chosen if each[0].estimate.batch == chosen.estimate.batch else None,
                    _to_the_loss(each, length),
                    length,
                )
                for each in self.by_batch
            ),
            same_from=self._end(chosen, length, [1 / each for each in FACTORS]),
            same_to=self._end(chosen, length, FACTORS),
            wasted_beyond=next(
                (each.estimate.batch for each in frontier if each.nodes == knee), None
            ),
        )

    def _option(
        self, chosen: Best | None, bests: Sequence[Best], length: TrainingLength
    ) -> BatchOption:
        best = chosen or choose(bests, bests, self.goal, self.cluster)
        batch = best.estimate.batch
        there = self.cluster.model_copy(update={"nodes": best.nodes})
        return BatchOption(
            batch=batch,
            nodes=best.nodes,
            layout=best.estimate.layout,
            step_seconds=best.estimate.step_seconds.value,
            samples_times=length.samples_times(batch),
            cost=training_cost(best, there, length.steps_with(batch)),
        )

    def _end(self, chosen: Best, length: TrainingLength, factors: Sequence[float]) -> float | None:
        """Return the last critical batch that has the same choice; None without end."""
        assert length.critical is not None
        same = critical = length.critical.at_hand
        for factor in factors:
            other = None
            with suppress(PacelineError):  # a limit that no number of nodes keeps then
                other = self.chosen(length.if_critical_were(factor))
            if other is None or _what(other) != _what(chosen):
                return same
            same = factor * critical
        return None


def _to_the_loss(bests: Sequence[Best], length: TrainingLength) -> list[Best]:
    """Return layouts with the samples that their batch needs to the training's loss."""
    return [
        replace(each, samples_times=length.samples_times(each.estimate.batch)) for each in bests
    ]


def _what(best: Best) -> tuple[int, int]:
    return best.nodes, best.estimate.batch
