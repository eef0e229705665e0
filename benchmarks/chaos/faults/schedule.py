"""Which fault comes when: a function of a seed, so that whatever it found can be tried again."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

from benchmarks.chaos.faults.kinds import KINDS

_FIRST_STEP = 30
_GAP_STEPS = (10, 30)
TAIL_STEPS = 250
"""Steps after the last fault is due: what was late still finds a training that goes on."""


@dataclass(frozen=True)
class Fault:
    """A fault that is to come."""

    number: int
    kind: str
    rank: int
    """The worker, or its node; counted anew where there are fewer."""
    step: int
    """After which it comes, as soon as enough workers train."""
    seconds: float
    """How long it lasts, or how long after the first blow the second comes."""
    sign: int
    """Of a clock's jump."""


def schedule(seed: int, kinds: Sequence[str], faults: int, workers: int) -> list[Fault]:
    """As many faults of these kinds, every kind before any comes too often."""
    chosen = random.Random(seed)
    step, found = _FIRST_STEP, []
    for number, kind in enumerate(_spared(_kinds(chosen, kinds, faults), workers)):
        step += chosen.randint(*_GAP_STEPS)
        found.append(
            Fault(
                number=number,
                kind=kind,
                rank=chosen.randrange(workers),
                step=step,
                seconds=round(chosen.uniform(0, 0.1), 3),
                sign=chosen.choice((-1, 1)),
            )
        )
    return found


def _kinds(chosen: random.Random, kinds: Sequence[str], faults: int) -> list[str]:
    """In every hundred each kind once, if there is room, and the others by their weights; in any
    order."""
    found: list[str] = []
    while len(found) < faults:
        found += _up_to_a_hundred(chosen, kinds, min(100, faults - len(found)))
    return found


def _up_to_a_hundred(chosen: random.Random, kinds: Sequence[str], faults: int) -> list[str]:
    once = list(kinds)
    chosen.shuffle(once)
    rest = chosen.choices(
        list(kinds), [KINDS[kind].weight for kind in kinds], k=max(0, faults - len(once))
    )
    chosen.shuffle(rest)
    together = list(chain(once, rest))[:faults]
    chosen.shuffle(together)
    return together


def _spared(kinds: Sequence[str], workers: int) -> list[str]:
    """Without those that would leave fewer nodes than the other kinds need."""
    left = workers - max((KINDS[kind].workers for kind in kinds), default=0)
    found = []
    for kind in kinds:
        if KINDS[kind].takes_node:
            left -= 1
        if left >= 0 or not KINDS[kind].takes_node:
            found.append(kind)
    return found


def total_steps(faults: Sequence[Fault]) -> int:
    """Steps of a training in which all of these find their place."""
    return (faults[-1].step if faults else _FIRST_STEP) + TAIL_STEPS


def printed(faults: Iterable[Fault]) -> str:
    """A line of JSON for each."""
    return "".join(json.dumps(asdict(fault)) + "\n" for fault in faults)


def read(text: str) -> list[Fault]:
    """What was printed."""
    return [Fault(**json.loads(line)) for line in text.splitlines()]
