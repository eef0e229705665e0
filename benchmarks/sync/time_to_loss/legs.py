"""Steps with the clock running, as all ranks saw them, and the losses that they led to."""

import math
import time
from dataclasses import dataclass

import psutil
import torch
import torch.distributed as dist

from benchmarks.sync.time_to_loss.learners import Learner, Weights
from benchmarks.sync.time_to_loss.task import Task


@dataclass(frozen=True)
class Leg:
    """Steps without an interruption. All ranks have the same figures."""

    seconds: list[float]
    """When the last rank passed each mark, since the first one began."""
    sent_bytes: list[float]
    """What the nodes had sent by then."""
    losses: list[float]
    end_seconds: float
    end_bytes: float


def leg(learner: Learner | None, marks: int, steps_between: int, task: Task) -> Leg:
    """Take steps, and the loss at marks between them; a rank without a learner stands by.

    Weights are copied at the marks, and judged when the clock has stopped. What is on its way at
    the end is waited for first: else it would travel for nothing meanwhile.
    """
    seconds, sent, copies = [0.0] * marks, [0.0] * marks, []
    dist.barrier()
    begin, sent_before = time.monotonic(), _sent_bytes()
    if learner is not None:
        for mark in range(marks):
            for _ in range(steps_between):
                learner.step()
            copies.append(learner.common())
            seconds[mark], sent[mark] = time.monotonic(), float(_sent_bytes() - sent_before)
        learner.drain()
    end, sent_at_end = time.monotonic(), _sent_bytes() - sent_before
    stands_by = learner is None
    mine = [math.inf if stands_by else begin, 0.0 if stands_by else end, sent_at_end]
    of_all = _gathered([*mine, *seconds, *sent])
    # All nodes are on one machine, so that their clocks are one.
    first, latest, total = of_all[:, 0].min(), of_all.amax(dim=0), of_all.sum(dim=0)
    return Leg(
        seconds=(latest[3 : 3 + marks] - first).tolist(),
        sent_bytes=total[3 + marks :].tolist(),
        losses=losses(copies, marks, task),
        end_seconds=float(latest[1] - first),
        end_bytes=float(total[2]),
    )


def losses(copies: list[Weights], count: int, task: Task) -> list[float]:
    """Of so many copies of the weights; the ranks that have them share the work."""
    having = int(_gathered([float(bool(copies))]).sum())
    found = torch.zeros(count, dtype=torch.float64)
    if copies:
        for number in range(dist.get_rank(), count, having):
            found[number] = task.held_out_loss(copies[number])
    dist.all_reduce(found)
    return found.tolist()


def _gathered(numbers: list[float]) -> torch.Tensor:
    """A row from each rank."""
    mine = torch.tensor(numbers, dtype=torch.float64)
    rows = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, mine)
    return torch.stack(rows)


def _sent_bytes() -> int:
    """By the network interfaces of this node, for whatever program."""
    every = psutil.net_io_counters(pernic=True)
    return sum(each.bytes_sent for name, each in every.items() if name != "lo")
