"""The nearest choices that are feasible, where the requested ones are not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from paceline.plan.cost.engine_kind import EngineKind
from paceline.plan.cost.node_kinds import first_nodes
from paceline.plan.search.best_layout import Profiles
from paceline.plan.search.degrees import batch_units, batches_near, dividing_nodes
from paceline.plan.search.infeasible import BatchIndivisible, Infeasible
from paceline.plan.search.ranking import needed_bytes
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.plans.sync import SyncSettings
from paceline.specs.units import count

MOST_DEVICES = 1 << 20
"""Devices up to which the suggestions go."""
TRIED_BELOW, TRIED_ABOVE = 2, 24
"""Numbers of nodes to try: fewer nodes have less memory, so most of them fail."""


@dataclass(frozen=True)
class Choice:
    """A request that has a layout."""

    nodes: int
    batch: int
    sync: SyncSettings | None


class NothingFeasible(Infeasible):
    """None of the requested numbers of nodes has a layout; `choices` would have."""

    def __init__(self, problem: str, fix: str, choices: tuple[Choice, ...]) -> None:
        super().__init__(problem, fix=fix)
        self.choices = choices


@dataclass(frozen=True)
class Nearest:
    """A model's feasible choices near a request."""

    profiles: Profiles
    cluster: Cluster
    batch: int
    sync: SyncSettings | None
    kind: EngineKind

    def explained(self, refused: Mapping[int, Infeasible]) -> NothingFeasible:
        """Return one error for all requested numbers of nodes, with what to choose instead.

        `refused`: the reason by number of nodes. Of each kind of reason, the error has that of
        the largest number.
        """
        reasons = {type(refused[nodes]): refused[nodes].problem for nodes in sorted(refused)}
        batches = self._other_batches(refused)
        nodes = self._other_nodes(refused)
        plain = self._plain(refused)
        fixes = [
            *([f"use {_batches(batches)} on {count(batches[0].nodes, 'node')}"] if batches else []),
            *([f"use {self._nodes(nodes)}"] if nodes else []),
            *([f"leave --sync {self.sync.short()} out"] if plain and self.sync else []),
        ]
        choices = [*batches, *nodes, *plain]
        if not choices:
            choices = self._more_nodes_and_samples(max(refused))
            fixes = [f"use {self._nodes([each])} with {_batches([each])}" for each in choices]
        fix = ", or ".join(fixes) or (
            f"use a smaller model or shorter samples: up to {MOST_DEVICES:,} such devices are not"
            " enough"
        )
        return NothingFeasible("; ".join(reasons.values()), fix, tuple(choices))

    def _other_batches(self, refused: Mapping[int, Infeasible]) -> list[Choice]:
        """Return the nearest batches, on the number of nodes that has the nearest."""
        near = [
            self._possible(Choice(nodes, batch, self.sync) for batch in self._batches_near(nodes))
            for nodes, reason in refused.items()
            if isinstance(reason, BatchIndivisible)
        ]
        found = [choices for choices in near if choices]
        return min(
            found,
            key=lambda some: min(abs(self.batch - each.batch) for each in some),
            default=[],
        )

    def _other_nodes(self, refused: Mapping[int, Infeasible]) -> list[Choice]:
        """Return the nearest numbers of nodes that can divide and hold the given batch."""
        profile = next(iter(self.profiles.values()))
        counts = dividing_nodes(profile, self.batch, self.cluster.devices_per_node)
        most = MOST_DEVICES // self.cluster.devices_per_node
        above = (each for each in counts if max(refused) < each <= most)
        below = (each for each in reversed(counts) if each < max(refused) and each not in refused)
        found = []
        for some in (islice(below, TRIED_BELOW), islice(_spread(above), TRIED_ABOVE)):
            choices = (Choice(nodes, self.batch, self.sync) for nodes in some)
            found += list(islice(filter(self._is_possible, choices), 1))
        return found

    def _plain(self, refused: Mapping[int, Infeasible]) -> list[Choice]:
        """Return plain all-reduce on a requested number of nodes."""
        if self.sync is None or self.sync.by_engine:
            return []
        return self._possible(Choice(nodes, self.batch, None) for nodes in refused)[:1]

    def _more_nodes_and_samples(self, nodes: int) -> list[Choice]:
        """Return a larger number of nodes with a larger batch."""
        while nodes * self.cluster.devices_per_node <= MOST_DEVICES:
            larger = (each for each in self._batches_near(nodes) if each >= self.batch)
            if found := self._possible(Choice(nodes, batch, self.sync) for batch in larger):
                return found[:1]
            nodes *= 2
        return []

    def _batches_near(self, nodes: int) -> list[int]:
        profile = next(iter(self.profiles.values()))
        units = batch_units(profile, nodes * self.cluster.devices_per_node)
        return batches_near(self.batch, units)

    def _possible(self, choices: Iterable[Choice]) -> list[Choice]:
        return list(filter(self._is_possible, choices))

    def _is_possible(self, choice: Choice) -> bool:
        there = first_nodes(self.cluster, choice.nodes)
        for precision, profile in self.profiles.items():
            try:
                needed = needed_bytes(
                    profile, there, choice.batch, precision, choice.sync, self.kind
                )
            except Infeasible:
                continue
            if needed <= there.device.memory_bytes:
                return True
        return False

    def _nodes(self, choices: Iterable[Choice]) -> str:
        each = self.cluster.devices_per_node
        return " or ".join(
            f"{count(choice.nodes, 'node')} ({count(choice.nodes * each, 'device')})"
            for choice in choices
        )


def _batches(choices: Iterable[Choice]) -> str:
    return " or ".join(f"--batch {choice.batch}" for choice in choices)


def _spread(numbers: Iterable[int]) -> Iterator[int]:
    """Yield ascending numbers that are at least a quarter apart."""
    last = 0.0
    for each in numbers:
        if each >= 1.25 * last:
            last = each
            yield each
