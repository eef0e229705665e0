"""Which settings a study measures."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import product

from paceline.specs import Kind, PacelineError, Point

BATCH = "batch"
LINK = "link"


def numbers(option: str, text: str) -> list[int]:
    """`1,2,4` as numbers, in their order, each once."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) for part in parts):
        raise PacelineError(
            f"{option} {text} is not a list of numbers",
            fix=f"write {option} 8, or {option} 1,2,4,8",
        )
    return sorted({int(part) for part in parts})


def varied(options: Sequence[str], allowed: Sequence[str]) -> dict[str, list[str]]:
    """`key=a,b` as the values of each key; `sync=local:every=8,compress=int8,allreduce` has two."""
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
            # What has an own `=` and no mode before it belongs to the value before.
            if values and "=" in part and ":" not in part.partition("=")[0]:
                values[-1] += f",{part}"
            else:
                values.append(part)
        found.setdefault(key, []).extend(values)
    return found


def points(
    nodes: Sequence[int],
    devices: Sequence[int],
    kind: Kind,
    varying: Mapping[str, Sequence[str]],
) -> tuple[Point, ...]:
    """All combinations; the batch of a weak study is the training's own times the workers."""
    found = []
    for values in product(*varying.values()):
        own = dict(zip(varying, values, strict=True))
        for count, each in product(nodes, devices):
            grown = count * each if kind == "weak" else 1
            found.append(
                Point(
                    nodes=count,
                    devices_per_node=each,
                    varied=own,
                    batch_times=grown * _times(own.get(BATCH, "1")),
                )
            )
    return tuple(sorted(found, key=lambda point: (point.family, point.workers, point.nodes)))


def key(point: Point) -> str:
    """A short name for a point, which a folder can have: `4x1`, `4x1-sync-local-every-8-1f3c`."""
    where = f"{point.nodes}x{point.devices_per_node}"
    if not point.varied:
        return where
    slug = re.sub(r"[^a-z0-9]+", "-", point.family.lower()).strip("-")[:40]
    mark = hashlib.sha256(point.family.encode()).hexdigest()[:4]
    return f"{where}-{slug}-{mark}"


def _times(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise PacelineError(
            f"--vary batch={text} is no multiple of the training's batch",
            fix="write --vary batch=1,2,4: the training's own, twice and four times as large",
        )
    return int(text)
