"""Margins of predicted memory for each engine, from models that were left out. See README.md."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.planner.score.cases import Case, chosen, grouped, known_engine
from benchmarks.planner.score.divided import MEMORY_DIVIDED
from benchmarks.planner.score.intervals import memory_bounds
from benchmarks.planner.score.scale_out import LAST_STAGE, MEMORY
from benchmarks.planner.score.scoring import Row, held_bytes
from paceline.cluster.collectives import Array

TABLES: Mapping[str, Callable[[Path], list[Case]]] = MEMORY | MEMORY_DIVIDED
ENGINES = {"torchtitan": "torchtitan", "torchtitan, context": "torchtitan", "BLOOM": "deepspeed"}
"""Engines of the tables that are not Megatron's."""
OTHERS = "any other"
"""Engines without a table: all groups are taken to be of one engine."""

Groups = dict[tuple[object, ...], Array]
"""Log errors of the calibration rows of one model on one device, by table, device and model."""


def margin_rows(data: Path) -> list[Row]:
    """Return the margins of each engine beside those in its file, and how many rows of groups that
    were left out lie below."""
    known = _groups(data)
    rows = []
    for engine in (*known, OTHERS):
        low, high = _bounds(known, engine)
        shipped = known_engine("fsdp" if engine == OTHERS else engine)
        mine = _of(known, engine)
        row: Row = {
            "table": engine,
            "groups": len(mine),
            "rows": sum(len(each) for each in mine.values()),
            "low": round(float(np.exp(low)), 3),
            "high": round(float(np.exp(high)), 3),
            "shipped_low": shipped.memory_low,
            "shipped_high": shipped.memory_high,
            "below": float(np.mean([_below(known, engine, each) for each in mine])),
        }
        rows.append(row)
    return rows


def _groups(data: Path) -> dict[str, Groups]:
    found: dict[str, dict[tuple[object, ...], list[float]]] = defaultdict(dict)
    for name, read in TABLES.items():
        measured = [each for each in read(data) if each.memory_bytes or each.out_of_memory]
        keys = chosen(measured)
        cases = [each for each in measured if each.key in keys and each.memory_bytes]
        for members, steps in grouped(cases):
            held = held_bytes(steps, name in LAST_STAGE)
            for place, nbytes in zip(members, held, strict=True):
                case = cases[place]
                model = (name, case.device, case.shape.hidden, case.shape.layers)
                errors = found[ENGINES.get(name, "megatron")].setdefault(model, [])
                errors.append(float(np.log((case.memory_bytes or 0.0) / nbytes)))
    return {
        engine: {model: np.array(errors) for model, errors in groups.items()}
        for engine, groups in found.items()
    }


def _of(known: dict[str, Groups], engine: str) -> Groups:
    if engine != OTHERS:
        return known[engine]
    return {model: errors for groups in known.values() for model, errors in groups.items()}


def _bounds(known: dict[str, Groups], engine: str) -> tuple[float, float]:
    mine = list(_of(known, engine).values())
    engines = [mine] if engine == OTHERS else [list(each.values()) for each in known.values()]
    return memory_bounds(mine, engines)


def _below(known: dict[str, Groups], engine: str, left_out: tuple[object, ...]) -> float:
    """Return the fraction of a group below the bound from all others."""
    rest = {
        name: {model: errors for model, errors in groups.items() if model != left_out}
        for name, groups in known.items()
    }
    _, high = _bounds(rest, engine)
    return float(np.mean(_of(known, engine)[left_out] <= high))
