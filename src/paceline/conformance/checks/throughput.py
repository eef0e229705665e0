"""Throughput beside plain PyTorch: DDP and FSDP2 of the same model, in alternating blocks.

It passes or fails only where the interval of the median lies on one side of the limit, and plain
PyTorch against itself shows that the machine is calm enough to tell. Otherwise it is not resolved.
"""

import statistics

from paceline.conformance.check import Check, Outcome, State
from paceline.conformance.session import Session
from paceline.conformance.worker.figures import read_figures
from paceline.specs import Layout

LEAST_RATIO = 0.95
_FAST_FLOPS, _LARGE_BYTES = 3e12, 15e9
"""Rate of a small matrix product, and memory of a device, from which the large model is trained."""


def _run(session: Session) -> Outcome:
    layouts = {"loop": Layout()}
    if session.workers > 1:
        layouts = {
            "DDP": Layout(replicas=session.workers),
            "FSDP2": Layout(shards=session.workers),
        }
    size = _size(session)
    words, figures, found = [], {}, []
    for name, layout in layouts.items():
        run = session.measured("throughput.py", "compared", layout, size)
        figures[name] = read_figures(run)[0]
        ratios, null = figures[name]["ratios"], figures[name]["null_ratios"]
        words.append(f"{_shown(ratios)} of plain {name}'s speed (against itself {_shown(null)})")
        found.append(verdict(ratios, null))
    state = max(found, key=_ORDER.index)
    if state == "not resolved":
        words.append("the machine is too noisy to tell")
    return Outcome(state, ", ".join(words), {"model": size, **figures})


_ORDER: tuple[State, ...] = ("passed", "not resolved", "failed")


def verdict(ratios: list[float], null: list[float]) -> State:
    """Return what the speeds beside plain PyTorch's say, where `null` is that beside itself."""
    low, high = _interval(ratios)
    null_low, null_high = _interval(null)
    if null_low < LEAST_RATIO or null_high > 1 / LEAST_RATIO or low < LEAST_RATIO <= high:
        return "not resolved"
    return "passed" if low >= LEAST_RATIO else "failed"


def _interval(values: list[float]) -> tuple[float, float]:
    """Return the order statistics between which the median lies, with 95 % confidence."""
    from scipy.stats import binom  # noqa: PLC0415 -- takes a second to load

    ranked = sorted(values)
    below = max(0, int(binom.ppf(0.025, len(ranked), 0.5)) - 1)
    return ranked[below], ranked[-1 - below]


def _shown(ratios: list[float]) -> str:
    low, high = _interval(ratios)
    return f"{statistics.median(ratios):.3f} [{low:.2f}, {high:.2f}]"


def _size(session: Session) -> str:
    """Return the size of the model: a step should take tens of milliseconds."""
    workers = session.probed.workers
    fast = min(each.best_flops for each in workers) > _FAST_FLOPS
    return (
        "large" if fast and min(each.memory_bytes for each in workers) > _LARGE_BYTES else "small"
    )


CHECK = Check(
    name="throughput",
    about="the speed of plain PyTorch, in alternating blocks",
    run=_run,
    typical_seconds=60,
)
