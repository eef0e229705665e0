"""Samples and minutes to a target, against what MLPerf submissions took. See README.md."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.planner.score.cases import Case, grouped, key_of, rows_of
from benchmarks.planner.score.learning import Learning, Line, closest_line, fit_learning
from benchmarks.planner.score.scale_out import mlperf_gpt3
from benchmarks.planner.score.scoring import SCALE, Row, predict
from paceline.cluster.collectives import Array
from paceline.plan.calibration.calibrate import fit

MEASURED = {
    "runs",
    "ttt_min",
    "ttt_best",
    "ttt_worst",
    "last_eval_samples",
    "throughput_samples_s",
}
BENCHMARKS = {
    "gpt3": "GPT-3",
    "llama31_405b": "Llama 3.1 405B",
    "llama2_70b_lora": "Llama 2 70B LoRA",
    "bert": "BERT",
}


@dataclass(frozen=True)
class Submission:
    """One row of the results."""

    key: str
    name: tuple[str, str, str]
    """Round, organisation and system."""
    batch: float
    samples: float
    """At the evaluation that reached the target."""
    seconds: float
    """From the begin of training to its end."""
    rate: float | None
    """Samples in a second, where they were logged."""


@dataclass(frozen=True)
class Benchmark:
    """Submissions to one benchmark, and what was fitted to some of them."""

    known: list[Submission]
    tested: list[Submission]

    @property
    def learning(self) -> Learning:
        """Samples by batch."""
        return fit_learning(
            np.array([each.batch for each in self.known]),
            np.array([each.samples for each in self.known]),
        )

    @property
    def constant(self) -> float:
        """The null model's samples."""
        return statistics.mean(each.samples for each in self.known)

    @property
    def beside(self) -> Line:
        """Seconds of a whole training by those of its samples: evaluation and the like."""
        logged = [(each.samples / each.rate, each.seconds) for each in self.known if each.rate]
        return closest_line(*np.array(logged).T)


def read(data: Path, benchmark: str) -> Benchmark:
    """Divided by the rule of README.md."""
    rows = {
        key_of(row, MEASURED): row
        for row in rows_of(data / "mlperf_training_v31_v40_v50.csv")
        if row["benchmark"] == benchmark and not row["org"].endswith("-power")
    }
    keys = sorted(rows)
    seen = set(keys[: min(30, len(keys) // 3)])
    every = [_submission(key, row) for key, row in rows.items()]
    return Benchmark(
        known=[each for each in every if each.key in seen],
        tested=[each for each in every if each.key not in seen],
    )


def _submission(key: str, row: dict[str, str]) -> Submission:
    # GPT-3's logs count tokens.
    unit = float(row["seq"]) if row["benchmark"] == "gpt3" else 1.0
    rate = row["throughput_samples_s"]
    return Submission(
        key=key,
        name=(row["round"], row["org"], row["system"]),
        batch=float(row["global_batch"]),
        samples=float(row["last_eval_samples"]) / unit,
        seconds=60.0 * float(row["ttt_min"]),
        rate=float(rate) / unit if rate else None,
    )


def samples_rows(data: Path) -> list[Row]:
    """Samples to the target from the batch alone."""
    found = []
    for name, title in BENCHMARKS.items():
        of = read(data, name)
        batches, samples = (_column(of.tested, each) for each in ("batch", "samples"))
        found.append(
            scored(
                f"samples to target, {title}",
                f"fitted on {len(of.known)}",
                of.learning.samples(batches) / samples,
                of.constant / samples,
            )
        )
    return found


def minutes_rows(data: Path) -> list[Row]:
    """Minutes to the target: predicted samples by the measured rate of samples."""
    every = {name: read(data, name) for name in BENCHMARKS}
    together = {title: [name] for name, title in BENCHMARKS.items()}
    together["the first three"] = [name for name in BENCHMARKS if name != "bert"]
    together["all four"] = list(BENCHMARKS)
    found = []
    for title, names in together.items():
        ratios = [_minutes(every[name]) for name in names]
        found.append(
            scored(
                f"minutes, measured throughput, {title}",
                f"fitted on {sum(len(every[name].known) for name in names)}",
                np.concatenate([predicted for predicted, _ in ratios]),
                np.concatenate([null for _, null in ratios]),
            )
        )
    return found


def _minutes(of: Benchmark) -> tuple[Array, Array]:
    """Predicted by measured, and the null model's."""
    logged = [each for each in of.tested if each.rate]
    batches, rates, seconds = (_column(logged, each) for each in ("batch", "rate", "seconds"))
    return (
        of.beside.at(of.learning.samples(batches) / rates) / seconds,
        of.beside.at(of.constant / rates) / seconds,
    )


def _column(submissions: Sequence[Submission], name: str) -> Array:
    return np.array([getattr(each, name) for each in submissions], dtype=np.float64)


def planned_row(data: Path) -> Row:
    """Minutes of GPT-3 with the planner's step time, fitted to at most 512 devices."""
    of = read(data, "gpt3")
    tested = {each.name: each for each in of.tested}
    cases = named_cases(data)
    known = [case for _, case in cases if case.gpus <= SCALE]
    larger = {case.key: tested[name] for name, case in cases if name in tested}
    steps = planned_steps(known, [case for _, case in cases if case.gpus > SCALE])
    ratios, nulls = [], []
    for key, (seconds, null) in steps.items():
        if key in larger:
            each = larger[key]
            ratios.append(float(of.learning.steps(each.batch)) * seconds / each.seconds)
            nulls.append(of.constant / each.batch * null / each.seconds)
    return scored(
        f"minutes, planned step, GPT-3 on > {SCALE}",
        f"fitted on {len(of.known)} and {len(known)}",
        np.array(ratios),
        np.array(nulls),
    )


def planned_steps(known: Sequence[Case], wanted: Sequence[Case]) -> dict[str, tuple[float, float]]:
    """Seconds of a step, and the null model's, by key; both fitted to `known`."""
    found = fit([steps for _, steps in grouped(known)])
    by = statistics.median(
        (each.case.step_seconds or math.nan) / each.null for each in predict(known, found, {})
    )
    return {each.case.key: (each.seconds, by * each.null) for each in predict(wanted, found, {})}


def named_cases(data: Path) -> list[tuple[tuple[str, str, str], Case]]:
    """Layouts of GPT-3 by round, organisation and system."""
    names = [
        (row["round"], row["org"], row["system"])
        for row in rows_of(data / "mlperf_llm_layouts.csv")
        if row["benchmark"] == "gpt3" and row["tp"] and not row["org"].endswith("-power")
    ]
    return list(zip(names, mlperf_gpt3(data), strict=True))


def scored(table: str, mode: str, ratios: Array, nulls: Array) -> Row:
    """Errors of predictions that are given by what was measured."""
    errors, null = np.abs(ratios - 1.0), np.abs(nulls - 1.0)
    return {
        "table": table,
        "mode": mode,
        "rows": len(errors),
        "mean": float(errors.mean()),
        "median": float(np.median(errors)),
        "max": float(errors.max()),
        "null_mean": float(null.mean()),
        "null_median": float(np.median(null)),
    }
