"""In which order the workers of a pipeline compute, and what each part waits for.

The orders are those of PyTorch's schedules, which the engine runs: `warm-up` forwards, then a
forward and a backward in turn, then the backwards that are left.
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
    """Every worker's parts by their place in its order; a part is one pass of one chunk."""

    part: Index
    """Chunk of a forward; chunks + chunk of a backward."""
    micro_batch: Index
    needs: Index
    """Number of the part whose result it needs, counted through all workers; -1 where it needs
    none but what its own worker did before."""


def order(schedule: Schedule, workers: int, micro_batches: int, chunks: int = 1) -> Order:
    """Of a pipeline with so many workers, each of which holds `chunks` stages."""
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
    # From the worker before; the first worker has its later chunks' input from the last worker.
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
    """Workers that can go on and the numbers of their parts, again and again until all is done.

    A worker has the parts from its number in `begin` to that in `end`, in this order; parts of one
    wave do not depend on each other.
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
