"""Times in which a protection of a run was off, in figures and words."""

from collections.abc import Sequence

from paceline.observe.lapses import Lapse
from paceline.report.reading.run_state import RunState
from paceline.specs import PROTECTIONS, Degraded, Protection, units
from paceline.specs.base import Spec

OFF_WORDS: dict[Protection, str] = {
    "peer copies": "peer copies are not made",
    "checkpoints": "checkpoints are not written",
    "events": "events are not written",
    "energy": "energy is not measured",
}


class LapseFigures(Spec):
    """A time in which a protection was off, for a worker or a node."""

    protection: Protection
    node: str
    worker: int | None
    """None for the whole node."""
    generation: int
    time: float
    """When it went off, in Unix seconds."""
    step: int | None
    """The first step whose state was not protected."""
    why: str
    restored_time: float | None
    """None if it still is off, or ended with its generation of workers."""
    restored_step: int | None
    seconds: float | None
    note: str
    off: bool
    """Whether it still is off, or was when the run ended."""


def lapse_figures(state: RunState) -> list[LapseFigures]:
    """Return every time in which a protection was off, in order."""
    off = state.off
    return [_figures(each, off) for each in state.lapses]


def off_sentences(off: Sequence[Degraded]) -> list[str]:
    """Return one sentence per protection that is off: for how many workers, since when and why."""
    return [_sentence(each, found) for each in PROTECTIONS if (found := _of(each, off))]


def _of(protection: Protection, off: Sequence[Degraded]) -> list[Degraded]:
    return [each for each in off if each.protection == protection]


def _sentence(protection: Protection, off: Sequence[Degraded]) -> str:
    first = off[0]
    since = "" if first.step is None else f" since step {first.step}"
    who = f"worker {first.rank} on {first.node}" if first.rank is not None else first.node
    if len(off) > 1:
        who = units.count(len(off), "node" if first.rank is None else "worker") + f", first {who}"
    return f"{OFF_WORDS[protection]}{since} ({who}): {first.why}"


def _figures(lapse: Lapse, off: Sequence[Degraded]) -> LapseFigures:
    began, ended = lapse.began, lapse.ended
    return LapseFigures(
        protection=began.protection,
        node=began.node,
        worker=began.rank,
        generation=began.generation,
        time=began.time,
        step=began.step,
        why=began.why,
        restored_time=ended.time if ended else None,
        restored_step=ended.step if ended else None,
        seconds=ended.seconds if ended else None,
        note=ended.note if ended else "",
        off=began in off,
    )
