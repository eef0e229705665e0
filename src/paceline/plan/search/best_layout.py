"""The best layout on some nodes, with its synchronization mode."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from paceline.plan.calibration.calibrate import Fit
from paceline.plan.cost.engine_kind import EngineKind
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.plan.search.infeasible import DoesNotFit, Infeasible
from paceline.plan.search.ranking import Found, search
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile, TrainingPrecision
from paceline.specs.plans.estimate import Estimate
from paceline.specs.plans.sync import SyncSettings, default_sync, sync_candidates

Profiles = Mapping[TrainingPrecision, Profile]
"""A model's profile in each precision that may be chosen."""

EXPOSED = 0.1
"""Fraction of a step spent on communication above which modes besides plain all-reduce are
tried."""
FEWEST_SECONDS, MOST_SECONDS = 1e-9, 1e12
"""Limits of a step that is one: beyond, a figure of the cluster or the model is wrong."""
WORTH_IT = 1.05
"""Speed-up to the same loss above which another mode replaces plain all-reduce: its effect on
learning is only assumed, and plain all-reduce has none."""


@dataclass(frozen=True)
class Best:
    """The layout that learns fastest on one number of nodes."""

    nodes: int
    precision: TrainingPrecision
    found: Found
    estimate: Estimate
    others: tuple["Best", ...] = ()
    """Other synchronization modes that were tried and lost, plain all-reduce first."""
    kind: EngineKind = PACELINE
    """The engine, or its variant that saves memory."""
    samples_times: float = 1.0
    """Samples to the same loss that the batch needs, relative to the training's own batch."""

    @property
    def samples_per_second(self) -> float:
        """Throughput of the training."""
        return self.estimate.samples_per_second

    @property
    def learned_per_second(self) -> float:
        """Throughput divided by the extra samples that the batch needs, and the mode is assumed to
        need."""
        return self.samples_per_second / self.estimate.extra_samples / self.samples_times

    @property
    def layouts_scored(self) -> int:
        """Layouts scored in one precision; plain all-reduce was tried on all of them."""
        return (self.others[0] if self.others else self).found.scored

    @property
    def waiting(self) -> float:
        """Fraction of a step spent on communication and in pipeline bubbles."""
        parts = self.estimate.seconds
        links = sum(parts[each] for each in ("tensor", "transfer", "bubble", "data"))
        return links / self.estimate.step_seconds.value


def best_on(
    profiles: Profiles,
    cluster: Cluster,
    batch: int,
    found: Fit,
    sync: SyncSettings | None = None,
    kind: EngineKind = PACELINE,
) -> Best:
    """Return the fastest layout on all nodes of a cluster; raise `Infeasible` if there is none.

    Without `sync`: plain all-reduce, unless another mode is worth it; other engines than Paceline's
    have no other.
    """
    if sync is not None:
        return _best_with(sync, profiles, cluster, batch, found, kind)
    plain = _best_with(default_sync(), profiles, cluster, batch, found, kind)
    if plain.nodes == 1 or plain.waiting <= EXPOSED or kind is not PACELINE:
        return plain
    return _worth_it(
        plain, lambda candidate: _best_with(candidate, profiles, cluster, batch, found, kind)
    )


def _best_with(
    sync: SyncSettings,
    profiles: Profiles,
    cluster: Cluster,
    batch: int,
    found: Fit,
    kind: EngineKind,
) -> Best:
    """Return the fastest layout in any precision."""
    bests = []
    refused: Infeasible | None = None
    for precision, profile in profiles.items():
        try:
            scored = search(profile, cluster, batch, found, precision, sync, kind)
            if not len(scored.seconds):
                held = float(scored.too_large_held.min())
                raise DoesNotFit(
                    profile.name,
                    cluster.devices,
                    held,
                    held * scored.steps.engine.memory_high,
                    cluster.device.memory_bytes,
                )
        except Infeasible as error:
            refused = refused or error
            continue
        if not FEWEST_SECONDS < scored.seconds[0] < MOST_SECONDS:  # also true for NaN
            raise PacelineError(
                f"a step of {profile.name} on {cluster.device.name} would take"
                f" {scored.seconds[0]:.3g} s",
                fix="correct the rates and latencies in the cluster's file, or the model's sizes",
            )
        estimate = scored.best(found, 1, precision)[0]
        bests.append(Best(cluster.nodes, precision, scored, estimate, kind=kind))
    if refused is not None and not bests:
        raise refused
    return max(bests, key=lambda each: each.learned_per_second)


def _worth_it(plain: Best, best_with: Callable[[SyncSettings], Best]) -> Best:
    """Return the best synchronization mode, with those that lost."""
    found: list[Best] = []
    for sync in sync_candidates():
        if not sync.by_engine:
            with suppress(Infeasible):
                found.append(best_with(sync))
    best = max(found, key=lambda each: each.learned_per_second, default=plain)
    if best.learned_per_second < WORTH_IT * plain.learned_per_second:
        return plain
    kinds: dict[str, Best] = {}
    for each in sorted(found, key=lambda each: -each.learned_per_second):
        kinds.setdefault(each.estimate.sync.title, each)
    return replace(best, others=(plain, *(each for each in kinds.values() if each is not best)))
