"""The points of a study: the settings that it measures."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import product

from paceline.specs import Kind, PacelineError, Point, SyncSettings
from paceline.specs.measurements.study import compares_quality

BATCH = "batch"
RATE = "lr"
NAIVE, SCALED = "naive", "scaled"
LARGER_BATCHES = ("1", "2", "4", "8", "16")
"""Factors of a batch study, unless others are given."""
LINK = "link"


def varied(options: Sequence[str], allowed: Sequence[str]) -> dict[str, list[str]]:
    """Parse `key=a,b` into the values of each key; `sync=local:every=8,compress=int8,allreduce`
    has two values."""
    found: dict[str, list[str]] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals or not text or key not in allowed:
            raise PacelineError(
                f"--vary {option} is not KEY=A,B with a key that can vary",
                fix=f"keys: {', '.join(allowed)}; such as --vary sync=allreduce,local:every=8",
            )
        values: list[str] = []
        for part in text.split(","):
            # A part with `=` but no mode before it belongs to the previous value.
            if values and "=" in part and ":" not in part.partition("=")[0]:
                values[-1] += f",{part}"
            else:
                values.append(part)
        found.setdefault(key, []).extend(values)
    return found


def with_larger_batches(varying: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Complete what a batch study varies: the batch, with the training's own first, and the rate
    by the rules."""
    batches = ["1", *(each for each in varying.get(BATCH, LARGER_BATCHES) if each != "1")]
    return {**varying, BATCH: batches, RATE: varying.get(RATE, [SCALED])}


def points(
    nodes: Sequence[int],
    devices: Sequence[int],
    kind: Kind,
    varying: Mapping[str, Sequence[str]],
) -> tuple[Point, ...]:
    """Return all combinations; a weak study multiplies the training's batch by the workers.

    A quality or batch study keeps the given order, since its first point is the base."""
    _check_rates(varying)
    found = []
    for values in product(*varying.values()):
        own = dict(zip(varying, values, strict=True))
        for count, each in product(nodes, devices):
            grown = count * each if kind == "weak" else 1
            times = grown * _times(own.get(BATCH, "1"))
            # With the training's own batch, every scaling rule gives its own learning rate: one
            # point.
            same = (BATCH, RATE) if compares_quality(kind) and times == 1 else ()
            kept = {key: value for key, value in own.items() if key not in same}
            found.append(Point(nodes=count, devices_per_node=each, varied=kept, batch_times=times))
    distinct = [point for number, point in enumerate(found) if point not in found[:number]]
    families = list(dict.fromkeys(point.family for point in distinct))
    if not compares_quality(kind):
        families.sort()
    return tuple(
        sorted(distinct, key=lambda each: (families.index(each.family), each.workers, each.nodes))
    )


def is_naive(point: Point) -> bool:
    """Return whether a larger batch keeps the training's own rate, as a null beside the rules."""
    return point.varied.get(RATE) == NAIVE


def check_rate(point: Point, sync: SyncSettings) -> None:
    """Refuse a scaled learning rate if the optimizer is not the training's, or has a replica's part
    of the batch: the rules do not know the part that the training's own rate belongs to."""
    if point.varied.get(RATE) != SCALED:
        return
    if sync.has_servers:
        raise PacelineError(
            f"--vary lr=scaled was given together with sync={sync.mode}, whose servers"
            " have their own learning rate",
            fix="leave one of them out",
        )
    if sync.replicas_differ and point.workers > 1:
        raise PacelineError(
            f"a scaled learning rate (lr=scaled) was asked for with sync={sync.mode}, where each"
            " replica updates with its own part of the batch",
            fix="leave one of them out; or compare trainings with Training(tuned_at=…), the batch"
            " of one replica that the rate was tuned at",
        )


def key(point: Point) -> str:
    """Return a short name for a point, fit for a folder: `4x1`, `4x1-sync-local-every-8-1f3c`."""
    where = f"{point.nodes}x{point.devices_per_node}"
    if not point.varied:
        return where
    slug = re.sub(r"[^a-z0-9]+", "-", point.family.lower()).strip("-")[:40]
    mark = hashlib.sha256(point.family.encode()).hexdigest()[:4]
    return f"{where}-{slug}-{mark}"


def _check_rates(varying: Mapping[str, Sequence[str]]) -> None:
    rates = varying.get(RATE, [])
    unknown = [each for each in rates if each not in (NAIVE, SCALED)]
    if unknown:
        raise PacelineError(
            f"--vary lr={unknown[0]} is neither naive nor scaled",
            fix="write --vary lr=naive,scaled: the training's own learning rate, and one that grows"
            " with the batch",
        )
    if rates and not any(_times(each) > 1 for each in varying.get(BATCH, [])):
        raise PacelineError(
            f"--vary lr={','.join(rates)} was given, but no point has a larger batch, for which"
            " the learning rate would be scaled",
            fix="add --vary batch=1,8",
        )


def _times(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise PacelineError(
            f"--vary batch={text} is not a multiple of the training's batch",
            fix="write --vary batch=1,2,4: the training's own, twice and four times as large",
        )
    return int(text)
