"""Kilowatt-hours of MLPerf trainings whose power was logged. See README.md.

Durations are given; what is predicted is the power. A node stands idle from the begin of the log to
that of training. On several nodes, the part of one node's rate that is missing counts as
communicating; GPT-3 has no run on one node, and the planner says what its devices do.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.planner.score.cases import grouped, key_of, rows_of
from benchmarks.planner.score.scoring import SCALE, Row
from benchmarks.planner.score.training import named_cases, planned_steps, read, scored
from paceline.cluster.catalog import device
from paceline.plan.calibration.calibrate import fit
from paceline.plan.cost.energy import HGX_H100, Activity, node_joules
from paceline.plan.cost.step_time import StepModel
from paceline.specs.measurements.cluster import NodePower

CONFIGURATION = ("round", "system", "benchmark", "nodes")
DEVICES = 8
GPT3_SYSTEM = ("v4.0", "smc", "64xSMC-H100-SXM-80GB")


@dataclass(frozen=True)
class Log:
    """The energy of one run, seen on one side of its power supplies."""

    key: str
    benchmark: str
    nodes: int
    device: str
    wall: bool
    """Before the power supply."""
    seconds: float
    start_seconds: float
    """Before training begins: the mean of its configuration."""
    computing: float
    """Of training, what its devices compute."""
    joules: float
    """Of one node."""

    @property
    def watts_limit(self) -> float:
        """Of one device."""
        return device(self.device).watts or 0.0

    @property
    def activity(self) -> Activity:
        """Of one device."""
        idle = min(self.start_seconds, self.seconds)
        busy = self.seconds - idle
        return Activity(
            computing=np.asarray(self.computing * busy),
            communicating=np.asarray((1.0 - self.computing) * busy),
            idle=np.asarray(idle),
        )


def energy_rows(data: Path) -> list[Row]:
    """All test rows, then some of them, then GPT-3 with its time predicted."""
    logs = read_logs(data)
    seen = chosen(logs)
    known = [each for each in logs if each.key in seen]
    tested = [each for each in logs if each.key not in seen]
    power = fitted(known)
    mode = f"fitted on {len(known)}"
    some = {
        "all": tested,
        "H100, one node": [each for each in tested if _is_h100(each) and each.nodes == 1],
        "H100, 8 to 64 nodes": [each for each in tested if _is_h100(each) and each.nodes > 1],
        "B200, none fitted": [each for each in tested if not _is_h100(each)],
    }
    rows = [
        scored(
            f"energy, {name}",
            mode,
            np.array([_joules(power, each) / each.joules for each in of]),
            np.array([_null(known, each) * each.seconds / each.joules for each in of]),
        )
        for name, of in some.items()
    ]
    return [*rows, _each_configuration(power, known, tested), _planned(data, power, known, tested)]


def _each_configuration(power: NodePower, known: list[Log], tested: list[Log]) -> Row:
    """The sum of its runs: MLPerf has 80 runs of some and 3 of others."""
    of: dict[tuple[str, bool], list[Log]] = defaultdict(list)
    for each in tested:
        of[each.key, each.wall].append(each)
    ratios, nulls = [], []
    for runs in of.values():
        measured = sum(each.joules for each in runs)
        ratios.append(sum(_joules(power, each) for each in runs) / measured)
        nulls.append(sum(_null(known, each) * each.seconds for each in runs) / measured)
    return scored(
        "energy, configurations", f"fitted on {len(known)}", np.array(ratios), np.array(nulls)
    )


def _planned(data: Path, power: NodePower, known: list[Log], tested: list[Log]) -> Row:
    """GPT-3 on 512 devices: its steps, their seconds and its start are predicted too."""
    of = read(data, "gpt3")
    cases = dict(named_cases(data))
    case = cases.pop(GPT3_SYSTEM)
    others = [each for each in cases.values() if each.gpus <= SCALE]
    ((step, null_step),) = planned_steps(others, [case]).values()
    start = statistics.mean(each.start_seconds for each in known)
    seconds = start + float(of.learning.steps(case.batch)) * step
    null_seconds = start + of.constant / case.batch * null_step
    runs = [each for each in tested if each.benchmark == "gpt3"]
    foreseen = [replace(each, seconds=seconds, start_seconds=start) for each in runs]
    return scored(
        "energy, GPT-3, time predicted",
        f"fitted on {len(known)}, {len(of.known)}, {len(others)}",
        np.array(
            [_joules(power, new) / old.joules for new, old in zip(foreseen, runs, strict=True)]
        ),
        np.array([_null(known, each) * null_seconds / each.joules for each in runs]),
    )


def read_logs(data: Path) -> list[Log]:
    """Every run, with what the table of results says about its configuration."""
    results = {
        (row["round"], row["org"], row["system"], row["benchmark"]): row
        for row in rows_of(data / "mlperf_training_v31_v40_v50.csv")
    }
    of: dict[tuple[str, str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows_of(data / "mlperf_power_energy.csv"):
        of[row["round"], row["org"], row["system"], row["benchmark"]].append(row)
    gpt3 = _computing_of_gpt3(data)
    one_node = {
        (round_, org, benchmark): _rate(results[round_, org, system, benchmark])
        for (round_, org, system, benchmark), rows in of.items()
        if rows[0]["nodes"] == "1"
    }
    logs = []
    for name, rows in of.items():
        round_, org, _, benchmark = name
        result = results[name]
        logged = statistics.mean(float(row["duration_s"]) for row in rows)
        alone = one_node.get((round_, org, benchmark))
        share = gpt3 if benchmark == "gpt3" else min(_rate(result) / alone, 1.0) if alone else 1.0
        for row in rows:
            nodes = int(row["nodes"])
            logs.append(
                Log(
                    key=key_of({each: row[each] for each in CONFIGURATION}, ()),
                    benchmark=benchmark,
                    nodes=nodes,
                    device="b200" if "B200" in row["system"] else "h100-80gb",
                    wall=org != "smc-dc-power",
                    seconds=float(row["duration_s"]),
                    start_seconds=max(logged - 60.0 * float(result["ttt_min"]), 0.0),
                    computing=share,
                    joules=3.6e6 * float(row["energy_kwh_nodes"]) / nodes,
                )
            )
    return logs


def _rate(result: dict[str, str]) -> float:
    """Samples, or epochs, of a minute on one device; logged throughput is one node's in places."""
    trained = float(result["last_eval_samples"]) / float(result["ttt_min"])
    return trained / float(result["accelerators"])


def _computing_of_gpt3(data: Path) -> float:
    """As the planner divides a step, fitted to the other rows of at most 512 devices."""
    cases = dict(named_cases(data))
    case = cases.pop(GPT3_SYSTEM)
    found = fit([steps for _, steps in grouped([c for c in cases.values() if c.gpus <= SCALE])])
    ((_, steps),) = grouped([case])
    numbers = found.numbers.faster(float(np.exp(found.kinds[steps.kind])))
    model = StepModel(steps.profile, steps.cluster, steps.precision, steps.engine, numbers)
    times = model.times(steps.layouts, steps.batch)
    return float(Activity.of(times).computing[0] / times.total[0])


def chosen(logs: Sequence[Log]) -> set[str]:
    """Configurations for calibration: at most a third of them, and of the rows."""
    runs: dict[str, int] = defaultdict(int)
    for each in logs:
        runs[each.key] += 1
    taken: set[str] = set()
    for key in sorted(runs):
        rows = runs[key] + sum(runs[each] for each in taken)
        if len(taken) < len(runs) // 3 and rows <= len(logs) // 3:
            taken.add(key)
    return taken


def fitted(known: Sequence[Log]) -> NodePower:
    """All but the devices, what they draw while computing, and what power supplies lose.

    Configurations count alike, however many runs they have. What devices draw while idle and
    while communicating cannot be told from these rows and stays as assumed.
    """
    sides = [[each for each in known if each.wall is wall] for wall in (True, False)]
    before, behind = (sum(each.joules for each in side) for side in sides)
    efficiency = behind / before
    columns, left = [], []
    runs = Counter(each.key for each in known)
    for each in known:
        weight = runs[each.key] ** -0.5
        inside = each.joules * (efficiency if each.wall else 1.0)
        full = DEVICES * each.watts_limit
        does = each.activity
        columns.append(weight * np.array([each.seconds, full * does.computing]) / inside)
        rest = HGX_H100.idle * does.idle + HGX_H100.communicating * does.communicating
        left.append(weight * (1.0 - full * rest / inside))
    (other, computing), *_ = np.linalg.lstsq(np.array(columns), np.array(left), rcond=None)
    return HGX_H100.model_copy(
        update={
            "other_watts": float(other),
            "computing": float(computing),
            "supply_efficiency": efficiency,
        }
    )


def _joules(power: NodePower, log: Log) -> float:
    """Predicted, of one node on that side of its power supply."""
    drawn = float(node_joules(power, log.watts_limit, DEVICES, log.activity))
    return drawn if log.wall else drawn * power.supply_efficiency


def _null(known: Sequence[Log], log: Log) -> float:
    """Constant watts of a node; of other devices, the same fraction of their power limit."""
    fractions: dict[str, list[float]] = defaultdict(list)
    for each in known:
        if each.wall == log.wall:
            fractions[each.key].append(each.joules / each.seconds / each.watts_limit)
    return statistics.mean(map(statistics.mean, fractions.values())) * log.watts_limit


def _is_h100(log: Log) -> bool:
    return log.device.startswith("h100")
