"""Tables of docs/papers that are read from published data: what others measured."""

import statistics
from collections import defaultdict
from pathlib import Path

from benchmarks.planner.pages.worked_plans import table_of
from benchmarks.planner.score.cases import rows_of

MOST_SLOWER = 0.1
"""Added time that a user may accept for less energy."""


def large_batches(data: Path) -> str:
    """Tabulate the epochs to MLPerf's accuracy of ResNet-50, by batch."""
    found = {
        int(row["batch_size"]): float(row["mean"])
        for row in rows_of(data / "mlperf_rcp_batch.csv")
        if row["benchmark"] == "resnet" and row["latest"] == "1"
    }
    smallest = min(found)
    rows = [
        [f"{batch:,}", f"{epochs:.1f}", f"{epochs / found[smallest]:.2f}"]
        for batch, epochs in sorted(found.items())
    ]
    return table_of(("batch", "epochs to 75.9 %", "samples, relative to the first row"), rows)


def gpt_scaling(data: Path) -> str:
    """Tabulate the measured strong scaling of a GPT with 177 billion parameters on H100s."""
    found = {
        int(row["gpus"]): float(row["tflops_per_gpu"])
        for row in rows_of(data / "megatron_core_h100.csv")
        if row["kind"].startswith("digitised")
    }
    fewest = min(found)
    rows = [
        [f"{gpus // 8:,}", f"{gpus:,}", f"{rate:.0f}", f"{rate / found[fewest]:.2f}"]
        for gpus, rate in sorted(found.items())
    ]
    return table_of(("nodes", "H100s", "TFLOP/s per device", "efficiency"), rows)


def capped(data: Path) -> str:
    """Tabulate energy and time under the best power limit, relative to the highest limit.

    A case is a network with its batch and optimizer, measured at every limit of its device.
    """
    cases: dict[tuple[str, ...], dict[int, tuple[float, float]]] = defaultdict(dict)
    for row in rows_of(data / "zeus_power_limit.csv"):
        key = (row["device"], row["network"], row["batch_size"], row["optimizer"])
        seconds = float(row["time_per_epoch"])
        cases[key][int(row["power_limit"])] = seconds, float(row["energy_per_epoch_j"])
    rows = []
    for device in dict.fromkeys(key[0] for key in cases):
        of = [points for key, points in cases.items() if key[0] == device]
        limits = set().union(*of)
        whole = [points for points in of if set(points) == limits]
        best = [_best(points, float("inf")) for points in whole]
        mild = [_best(points, MOST_SLOWER) for points in whole]
        rows.append(
            [
                device,
                f"{min(limits)} to {max(limits)} W",
                f"{len(whole)} of {len(of)}",
                *(_middle([each[place] for each in best]) for place in (0, 1)),
                *(_middle([each[place] for each in mild]) for place in (0, 1)),
            ]
        )
    head = (
        "device",
        "limits",
        "cases with all limits",
        "energy, least-energy limit",
        "time",
        f"energy, at most {MOST_SLOWER:.0%} more time".replace("%", " %"),
        "time",
    )
    return table_of(head, rows)


def _best(points: dict[int, tuple[float, float]], most_slower: float) -> tuple[float, float]:
    """Return the changes of energy and time at the limit with the least energy."""
    seconds, joules = points[max(points)]
    changes = [(energy / joules - 1, took / seconds - 1) for took, energy in points.values()]
    return min(each for each in changes if each[1] <= most_slower)


def _middle(changes: list[float]) -> str:
    """Return median and quartiles in percent."""
    low, middle, high = (100 * each for each in statistics.quantiles(changes, n=4))
    return f"{middle:+.0f} % ({low:+.0f} to {high:+.0f})".replace("-", "−")
