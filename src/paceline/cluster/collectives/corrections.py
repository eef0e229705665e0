"""Corrections of the cost models by measured collectives.

A probe measures few group sizes. Between them, the ratios of measured to modeled latency and time
per byte are interpolated; beyond them they stay constant, and the model gives the growth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.cluster.collectives.cost_models import Array, Group
from paceline.specs.measurements.cluster import CollectiveCost

Model = Callable[[Array, Group], Array]

LARGE_BYTES = 1e18
"""A message size at which latency is negligible."""


@dataclass(frozen=True)
class Correction:
    """Correction factors of one operation's model, and the number of bytes that add no time."""

    latency: Array
    seconds_per_byte: Array
    free_bytes: Array


@dataclass(frozen=True)
class Curve:
    """Corrections by group size: its number of nodes, or of members inside one node."""

    size_logs: Array
    by_size: Correction

    def at(self, size_log: Array) -> Array:
        """Return the corrections as rows, in the order of `Correction`'s fields."""
        known = self.by_size
        return np.stack(
            [
                np.interp(size_log, self.size_logs, values)
                for values in (known.latency, known.seconds_per_byte, known.free_bytes)
            ]
        )


@dataclass(frozen=True)
class Measured:
    """The measurements of one operation."""

    inside: Curve | None
    between: Mapping[float, Curve]
    """Curves by the base-2 logarithm of the members per node."""

    def covers(self, group: Group) -> Array:
        """Return whether such groups were measured: inside a node, or between nodes."""
        return np.where(group.nodes > 1, bool(self.between), self.inside is not None)

    def at(self, group: Group) -> Correction:
        """Return the corrections for these groups."""
        size_log = np.log2(np.where(group.nodes > 1, group.nodes, group.members))
        found = np.ones((3, *size_log.shape))
        if self.between:
            place = np.log2(group.per_node)
            logs = list(self.between)
            # A curve's weight falls from 1 at its own members per node to 0 at the next curve's.
            parts = (np.interp(place, logs, each) for each in np.eye(len(logs)))
            curves = self.between.values()
            found = np.asarray(
                sum(part * each.at(size_log) for part, each in zip(parts, curves, strict=True))
            )
        if self.inside is not None:
            found = np.where(group.nodes > 1, found, self.inside.at(size_log))
        return Correction(*found)


@dataclass(frozen=True)
class ProbedGroup(Group):
    """A group of a probed cluster."""

    measured: Mapping[str, Measured]
    """Measurements by operation."""


def corrected(operation: str, model: Model) -> Model:
    """Return the model, corrected for groups of a probed cluster."""

    def seconds(nbytes: Array, group: Group) -> Array:
        lines = group.measured.get(operation) if isinstance(group, ProbedGroup) else None
        if lines is None:
            return model(nbytes, group)
        latency, per_byte = _line(model, group)
        by = lines.at(group)
        line = latency * by.latency + per_byte * by.seconds_per_byte * np.maximum(
            nbytes - by.free_bytes, 0.0
        )
        covered = lines.covers(group)
        return line if covered.all() else np.where(covered, line, model(nbytes, group))

    return seconds


def measured(
    costs: Sequence[CollectiveCost],
    models: Mapping[str, Model],
    group: Callable[[Array, Array], Group],
) -> dict[str, Measured]:
    """Return the corrections by operation.

    `group` makes a group from its members and its members per node.
    """
    return {
        operation: _of_operation(
            [each for each in costs if each.operation == operation], model, group
        )
        for operation, model in models.items()
        if any(each.operation == operation for each in costs)
    }


def _of_operation(
    costs: Sequence[CollectiveCost], model: Model, group: Callable[[Array, Array], Group]
) -> Measured:
    inside = [each for each in costs if each.members == each.members_per_node]
    between: dict[int, list[CollectiveCost]] = {}
    for each in costs:
        if each.members > each.members_per_node:
            between.setdefault(each.members_per_node, []).append(each)
    return Measured(
        inside=_curve(inside, model, group) if inside else None,
        between={
            float(np.log2(per_node)): _curve(between[per_node], model, group)
            for per_node in sorted(between)
        },
    )


def _curve(
    costs: Sequence[CollectiveCost], model: Model, group: Callable[[Array, Array], Group]
) -> Curve:
    costs = sorted(costs, key=lambda each: each.members)
    seen = group(
        np.array([float(each.members) for each in costs]),
        np.array([float(each.members_per_node) for each in costs]),
    )
    latency, per_byte = _line(model, seen)
    sizes = np.where(seen.nodes > 1, seen.nodes, seen.members)
    return Curve(
        size_logs=np.log2(sizes),
        by_size=Correction(
            latency=np.array([each.latency_seconds for each in costs]) / latency,
            seconds_per_byte=1.0 / np.array([each.bytes_per_second for each in costs]) / per_byte,
            free_bytes=np.array([each.free_bytes for each in costs]),
        ),
    )


def _line(model: Model, group: Group) -> tuple[Array, Array]:
    """Return latency and seconds per byte of large messages."""
    latency = model(np.zeros(()), group)
    return latency, (model(np.full((), LARGE_BYTES), group) - latency) / LARGE_BYTES
