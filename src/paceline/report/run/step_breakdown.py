"""The step breakdown: where a step's time goes, which stragglers delay it, and its summary."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median_low
from types import ModuleType
from typing import Any

from paceline.report.drawing.chart import Chart, finish, named_bars
from paceline.report.reading.failure_cause import plain
from paceline.report.reading.run_state import RunState
from paceline.specs import PARTS, Limit, Part, units
from paceline.specs.base import Spec
from paceline.specs.runs.events import own_seconds

SLOW_FACTOR = 1.3
"""A worker counts as slow if it is busy more than this many times as long as the median worker."""
MOST_BARS = 16
WORTH_SAYING, WORTH_MENDING = 0.02, 0.1
"""Fractions of a step."""

# Okabe-Ito; blues for computation, warm colors for waiting.
COLORS: dict[Part, str] = {
    "forward": "#56B4E9",
    "backward": "#0072B2",
    "pipeline": "#0072B2",
    "optimizer": "#009E73",
    "communication": "#D55E00",
    "data": "#E69F00",
    "checkpoint": "#CC79A7",
    "other": "#888888",
}
MEANINGS: dict[Part, str] = {
    "data": "waited for data",
    "forward": "computed forward",
    "backward": "computed backward",
    "pipeline": "worked in the pipeline or waited for its other stages",
    "communication": "waited for other workers",
    "optimizer": "updated the weights",
    "checkpoint": "was stalled by checkpoints",
    "other": "went to the rest",
}
_REASONS: dict[Part, str] = {
    "data": "data",
    "forward": "compute",
    "backward": "compute",
    "pipeline": "compute",
    "optimizer": "compute",
    "checkpoint": "checkpoints",
    "other": "other",
}


class SlowWorker(Spec):
    """A straggler that the other workers wait for."""

    rank: int
    node: str
    slowness: float
    """Its busy time per step over that of the median worker."""
    reason: str
    """The part that takes it longer: compute, data, checkpoints or other."""


class Breakdown(Spec):
    """The step breakdown of a run."""

    seconds: dict[Part, float]
    """Mean seconds per step over the workers, by part, without parts that take no time."""
    network_seconds: float
    """The part of `communication` spent on the network: the least communication time of any worker,
    because the last to arrive does not wait. The rest is waiting for slower or later workers."""
    slow: list[SlowWorker]
    """Slowest first."""
    limit: Limit
    limit_share: float
    """The limit's share of a step; for `compute`, the share of computation."""

    @property
    def step_seconds(self) -> float:
        """Total duration of a step."""
        return sum(self.seconds.values())

    def fraction(self, *parts: Part) -> float:
        """Return the fraction of a step that these parts take."""
        return sum(self.seconds.get(part, 0.0) for part in parts) / (self.step_seconds or 1.0)


def reason(parts: Mapping[Part, float], usual: Mapping[Part, float]) -> str:
    """Return the part in which a worker most exceeds the usual time."""
    longer: dict[str, float] = {}
    for part, word in _REASONS.items():
        more = parts.get(part, 0.0) - usual.get(part, 0.0)
        longer[word] = longer.get(word, 0.0) + more
    return max(longer, key=lambda word: longer[word])


def usual_parts(of_workers: Mapping[int, Mapping[Part, float]]) -> dict[Part, float]:
    """Return each part's time on the median worker; of two workers, on the faster one."""
    return {
        part: median_low(parts.get(part, 0.0) for parts in of_workers.values()) for part in PARTS
    }


def breakdown(state: RunState) -> Breakdown | None:
    """Return the run's step breakdown, or None if no worker reported one."""
    found = {rank: worker.mean_parts for rank, worker in state.workers.items() if worker.mean_parts}
    if not found:
        return None
    seconds = {part: fmean(each.get(part, 0.0) for each in found.values()) for part in PARTS}
    usual = usual_parts(found)
    own = {rank: own_seconds(parts, sum(parts.values())) for rank, parts in found.items()}
    middle = median_low(own.values())
    slow = [
        SlowWorker(
            rank=rank,
            node=state.workers[rank].node,
            slowness=own[rank] / middle,
            reason=reason(found[rank], usual),
        )
        for rank in sorted(own, key=lambda rank: -own[rank])
        if middle > 0 and own[rank] > SLOW_FACTOR * middle
    ]
    network = min(parts.get("communication", 0.0) for parts in found.values())
    # The time that a step would save: one worker's delay delays the whole cluster.
    lost: dict[Limit, float] = {
        "network": network,
        "data": usual["data"],
        "checkpoints": usual["checkpoint"],
        "other": usual["other"],
    }
    if slow:
        lost["slow worker"] = own[slow[0].rank] - middle
    else:
        lost["uneven steps"] = seconds["communication"] - network
    whole = sum(seconds.values())
    limit = max(lost, key=lambda each: lost[each])
    if lost[limit] < WORTH_MENDING * whole:
        limit, lost["compute"] = "compute", whole - sum(lost.values())
    return Breakdown(
        seconds={part: value for part, value in seconds.items() if value},
        network_seconds=network,
        slow=slow,
        limit=limit,
        limit_share=lost[limit] / whole if whole else 0.0,
    )


def breakdown_sentence(found: Breakdown) -> str:
    """Return `Of a step's 42 ms, 61 % computed, 30 % waited for other workers, …`."""
    computing = found.fraction("forward", "backward", "optimizer", "pipeline")
    said = [f"{units.percent(computing)} computed"]
    rest: tuple[Part, ...] = ("communication", "data", "checkpoint", "other")
    for part in sorted(rest, key=lambda part: -found.fraction(part)):
        share = found.fraction(part)
        if share >= WORTH_SAYING:
            said.append(f"{units.percent(share)} {MEANINGS[part]}")
    words = f"Of a step's {units.duration(found.step_seconds)}, {_listed(said)}."
    if found.fraction("communication") >= WORTH_SAYING:
        words += (
            f" {units.duration(found.network_seconds)} of the waiting is the communication"
            " itself, which even the last worker to arrive waits for."
        )
    for each in found.slow[:1]:
        words += (
            f" Worker {each.rank} on {plain(each.node)} is a straggler: busy {each.slowness:.2f} ×"
            f" as long as the median worker, because of {each.reason}."
        )
    if len(found.slow) > 1:
        words += f" There are {units.count(len(found.slow) - 1, 'more straggler')}."
    return words


def breakdown_picture(state: RunState, found: Breakdown, altair: ModuleType) -> Chart:
    """Return a chart with one bar per worker, divided by part."""
    workers = [worker for worker in state.workers.values() if worker.mean_parts]
    shown = sorted(workers, key=lambda worker: worker.rank)
    if len(shown) > MOST_BARS:
        # Show the workers that are busy shortest and longest: they carry the information.
        shown = sorted(
            workers, key=lambda one: one.mean_parts.get("communication", 0.0), reverse=True
        )
        shown = shown[: MOST_BARS // 2] + shown[-MOST_BARS // 2 :]
    order = [part for part in COLORS if part in found.seconds]
    rows = [
        {
            "worker": f"worker {worker.rank} on {plain(worker.node)}",
            "part": part,
            "order": order.index(part),
            "ms": float(f"{1e3 * worker.mean_parts.get(part, 0.0):.5g}"),
        }
        for worker in shown
        for part in order
    ]
    label = "A bar for each worker, divided into the parts of its step time"
    bars = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("ms:Q", title="Milliseconds per step, mean", stack="zero"),
        order="order:O",
        color=part_colors(order, altair),
        tooltip=[
            altair.Tooltip("worker:N", title="worker"),
            altair.Tooltip("part:N", title="part"),
            altair.Tooltip("ms:Q", title="ms", format=",.4~r"),
        ],
    )
    chart = named_bars(bars, "worker", len(shown), altair)
    caption = breakdown_sentence(found)
    if len(shown) < len(workers):
        caption += (
            f" Drawn: of {len(workers):,} workers the {len(shown)} that wait most and least for"
            " the others."
        )
    return Chart("breakdown", "Step breakdown", caption, label, finish(chart, label))


def meanings(order: Sequence[Part]) -> str:
    """Format as `forward (computed forward), …`."""
    return ", ".join(f"{part} ({MEANINGS[part]})" for part in order)


def part_colors(order: Sequence[Part], altair: ModuleType) -> Any:
    """Return the color channel for the parts, with a legend above the chart."""
    return altair.Color(
        "part:N",
        title=None,
        scale=altair.Scale(domain=order, range=[COLORS[part] for part in order]),
        legend=altair.Legend(orient="top", columns=3, labelColor="currentColor"),
    )


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
