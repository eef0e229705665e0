"""The order in which pipeline workers compute, and the dependencies between passes.

The orders are those of PyTorch's schedules, which the engine runs: `warm-up` forwards, then
alternating forwards and backwards, then the remaining backwards.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from paceline.plan.cost.layout_table import Index
from paceline.specs.errors import PacelineError

Schedule = Literal["gpipe", "1f1b", "interleaved"]


@dataclass(frozen=True)
class Order:
    """Each worker's passes in its order; a pass is one forward or backward of one chunk."""

    part: Index
    """Chunk of a forward; chunks + chunk of a backward."""
    micro_batch: Index
    needs: Index
    """Number of the pass whose result it needs, counted over all workers; -1 if it needs only
    its own worker's previous passes."""


def order(schedule: Schedule, workers: int, micro_batches: int, chunks: int = 1) -> Order:
    """Return the order for a pipeline of `workers` workers with `chunks` stages each."""
    in_round = _micro_batches_in_a_round(schedule, workers, micro_batches, chunks)
    total = chunks * micro_batches
    worker = np.arange(workers)[:, np.newaxis]
    behind = workers - 1 - worker
    warm_up = {
        "gpipe": total + 0 * behind,
        "1f1b": behind,
        "interleaved": (chunks - 1) * in_round + 2 * behind,
    }[schedule]
    warm_up = np.minimum(warm_up, total)

    step = np.arange(total)
    in_turn = total - warm_up
    forward_place = np.where(step < warm_up, step, 2 * step - warm_up)
    backward_place = np.where(step < in_turn, warm_up + 2 * step + 1, total + step)
    turn = (step // in_round) % chunks
    micro_batch = step // (in_round * chunks) * in_round + step % in_round

    places = 2 * total
    forward_number = worker * places + forward_place
    backward_number = worker * places + backward_place
    # Input comes from the previous worker; the first worker's later chunks take it from the last
    # one.
    forward_needs = np.roll(forward_number, 1, axis=0)
    forward_needs[0] = np.where(turn > 0, np.roll(forward_needs[0], in_round), -1)
    backward_needs = np.roll(backward_number, -1, axis=0)
    backward_needs[-1] = np.where(turn > 0, np.roll(backward_needs[-1], in_round), -1)

    found = Order(*(np.empty((workers, places), dtype=np.intp) for _ in range(3)))
    for number, part, needs in (
        (forward_number, turn, forward_needs),
        (backward_number, 2 * chunks - 1 - turn, backward_needs),
    ):
        found.part.flat[number] = part
        found.micro_batch.flat[number] = micro_batch
        found.needs.flat[number] = needs
    return found


def _micro_batches_in_a_round(
    schedule: Schedule, workers: int, micro_batches: int, chunks: int
) -> int:
    if schedule != "interleaved":
        if chunks > 1:
            raise PacelineError(
                f"{schedule} has one stage on a worker, not {chunks}",
                fix="use the interleaved schedule",
            )
        return micro_batches
    rounds = max(micro_batches // workers, 1)
    if micro_batches % rounds:
        raise PacelineError(
            f"{micro_batches} micro-batches cannot be divided into {rounds} rounds of a pipeline"
            f" with {workers} workers",
            fix=f"use a multiple of {workers} micro-batches",
        )
    return micro_batches // rounds


def waves(needs: Index, begin: Index, end: Index) -> Iterator[tuple[Index, Index]]:
    """Yield the workers that can continue and the numbers of their passes, until all are done.

    A worker has the passes from its number in `begin` to that in `end`, in this order; passes of
    one wave do not depend on each other.
    """
    done = np.zeros(len(needs) + 1, dtype=np.bool_)
    done[-1] = True
    number = begin.copy()
    waiting = np.append(needs, -1)
    left = np.flatnonzero(number < end)
    while len(left):
        at = number[left]
        ready = done[waiting[at]]
        going, numbers = left[ready], at[ready]
        assert len(going), "every worker waits for another one"
        yield going, numbers
        done[numbers] = True
        number[going] += 1
        left = left[number[left] < end[left]]
