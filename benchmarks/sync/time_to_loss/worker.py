"""One rank on a node of the testbed: `python -m benchmarks.sync.time_to_loss.worker FOLDER`.

srun starts it once, for the whole measurement. It does one phase after the other, as the driver
asks for them with files in the folder; between two phases the driver may change the links.
"""

import json
import math
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from benchmarks.sync.time_to_loss.candidates import Trial
from benchmarks.sync.time_to_loss.learners import LEARNERS, Learner, Solo
from benchmarks.sync.time_to_loss.legs import leg, losses
from benchmarks.sync.time_to_loss.results import Point, Result
from benchmarks.sync.time_to_loss.sizes import SIZES
from benchmarks.sync.time_to_loss.task import Padding, Task
from paceline.cluster import interfaces
from paceline.comm.groups import Groups
from paceline.comm.rendezvous import Rendezvous
from paceline.specs import PacelineError, Placement

if TYPE_CHECKING:  # torch.distributed defines TCPStore conditionally, type checkers do not see it
    from torch._C._distributed_c10d import TCPStore
else:
    from torch.distributed import TCPStore

CPU = torch.device("cpu")
STEPS_BETWEEN_LOSSES = 10
FIRST_LEG_STEPS = 20
TIMED_STEPS = 30
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Wanted:
    """A run that a phase asks for."""

    candidate: str
    seed: int
    trial: Trial
    target: float
    most_seconds: float


class Worker:
    """A rank."""

    def __init__(self, folder: Path, model: str, padded_seconds: float | None) -> None:
        self._folder = folder
        self._padded_seconds = padded_seconds
        rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
        self._placement = Placement(rank, ranks, 0, 1, os.environ["SLURMD_NODENAME"])
        if padded_seconds is None:
            cores = sorted(os.sched_getaffinity(0))  # the node's own, where there are enough
            os.sched_setaffinity(0, {cores[rank % len(cores)]})
        torch.set_num_threads(1)
        self._padding = Padding() if padded_seconds else None
        self._plain = Task(SIZES[model])
        self._padded = Task(SIZES[model], self._padding)
        self._rendezvous = self._meet()
        self._steps_of: dict[str, int] = {}
        """To the target, in the longest run of a candidate so far."""

    def serve(self) -> None:
        """Say how long a step takes, then do what is asked for until nothing more is."""
        self._warm_up()
        number = 0
        while True:
            phase = self._folder / f"phase-{number}.json"
            while not phase.exists():
                time.sleep(_POLL_SECONDS)
            runs = json.loads(phase.read_text())
            if not runs:
                return
            for each in runs:
                result = self._run(Wanted(**each | {"trial": Trial(**each["trial"])}))
                self._say(f"results-{number}.jsonl", asdict(result))
            number += 1

    def _meet(self) -> Rendezvous:
        """Rank 0 listens and says where."""
        said = self._folder / "where.json"
        if self._placement.rank == 0:
            interface = interfaces.outward()
            store = TCPStore(interface.address, 0, is_master=True, wait_for_workers=False)
            secret = os.urandom(16)
            draft = said.with_suffix(".draft")
            draft.write_text(json.dumps([interface.address, store.port, secret.hex()]))
            draft.rename(said)
            return Rendezvous(store, secret, interface)
        while not said.exists():
            time.sleep(_POLL_SECONDS)
        address, port, secret_hex = json.loads(said.read_text())
        store = TCPStore(address, port, is_master=False, wait_for_workers=False)
        return Rendezvous(store, bytes.fromhex(secret_hex), interfaces.towards(address))

    def _groups(self) -> Groups:
        """New process groups, so that no candidate has what another has left."""
        self._placement = replace(self._placement, generation=self._placement.generation + 1)
        return Groups(self._placement, CPU, self._rendezvous)

    def _warm_up(self) -> None:
        """Load what is loaded late, and time the part of a step that a rank has under DDP, all of
        them at once."""
        groups = self._groups()
        learner: Learner = Solo(
            self._plain, Trial("solo", part=1 / self._placement.workers), 0, groups
        )
        seconds = []
        for _ in range(TIMED_STEPS):
            begin = time.perf_counter()
            learner.step()
            seconds.append(time.perf_counter() - begin)
        learner.close()
        for trial in (Trial("ddp"), Trial("paceline", sync="local:every=2")):
            learner = LEARNERS[trial.kind](self._plain, trial, 0, groups)
            leg(learner, 1, 2, self._plain)
            learner.close()
        slowest = torch.tensor(statistics.median(seconds[TIMED_STEPS // 3 :]))
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        words = {"seconds": float(slowest), "parameter_bytes": self._plain.parameter_bytes}
        self._say("compute.json", words)
        groups.leave()

    def _run(self, wanted: Wanted) -> Result:
        groups = self._groups()
        if self._padding and self._padded_seconds:
            self._padding.begin_run(self._padded_seconds * wanted.trial.part)
        points: list[Point] = []
        sync = failed = ""
        try:
            points, sync = self._learn(wanted, groups)
        except PacelineError as error:  # the loss became infinite, which all ranks find together
            failed = str(error)
        late = torch.tensor(self._padding.late if self._padding else 0.0)
        dist.all_reduce(late, op=dist.ReduceOp.MAX)
        groups.leave()
        return Result(
            candidate=wanted.candidate,
            seed=wanted.seed,
            trial=wanted.trial,
            target=wanted.target,
            points=tuple(points),
            late_steps=float(late),
            sync=sync,
            failed=failed,
        )

    def _learn(self, wanted: Wanted, groups: Groups) -> tuple[list[Point], str]:
        """Learn until the target is reached or the time is up."""
        trial = wanted.trial
        alone = trial.kind == "solo"
        # Padded steps of one rank alone would only be slept through: their time is known.
        task = self._plain if alone else self._padded
        step_seconds = None
        if alone and self._padded_seconds:
            step_seconds = self._padded_seconds * trial.part * groups.placement.workers
        stands_by = alone and groups.placement.rank > 0
        learner = None if stands_by else LEARNERS[trial.kind](task, trial, wanted.seed, groups)
        points = [Point(0, 0, 0.0, 0.0, losses([learner.common()] if learner else [], 1, task)[0])]
        expected = self._steps_of.get(wanted.candidate, task.size.expected_steps)
        steps, seconds, sent_bytes, length = 0, 0.0, 0.0, FIRST_LEG_STEPS
        while seconds < wanted.most_seconds and all(each.loss > wanted.target for each in points):
            marks = max(1, length // STEPS_BETWEEN_LOSSES)
            found = leg(learner, marks, STEPS_BETWEEN_LOSSES, task)
            for mark in range(marks):
                steps += STEPS_BETWEEN_LOSSES
                points.append(
                    Point(
                        step=steps,
                        samples=round(steps * trial.part * task.size.batch),
                        seconds=(
                            steps * step_seconds if step_seconds else seconds + found.seconds[mark]
                        ),
                        sent_bytes=sent_bytes + found.sent_bytes[mark],
                        loss=found.losses[mark],
                    )
                )
            seconds = points[-1].seconds if step_seconds else seconds + found.end_seconds
            sent_bytes += found.end_bytes
            left = (wanted.most_seconds - seconds) * steps / seconds
            length = min(math.ceil(left), max(expected - steps, expected // 6))
        self._note_steps(wanted, points)
        sync = learner.sync() if learner else ""
        if learner:
            learner.close()
        return points, sync

    def _note_steps(self, wanted: Wanted, points: list[Point]) -> None:
        reached = [point.step for point in points if point.loss <= wanted.target]
        before = self._steps_of.get(wanted.candidate, 0)
        if reached:
            self._steps_of[wanted.candidate] = max(before, reached[0])

    def _say(self, name: str, words: Any) -> None:
        if self._placement.rank == 0:
            with (self._folder / name).open("a") as file:
                file.write(json.dumps(words) + "\n")


if __name__ == "__main__":
    given = Path(sys.argv[1])
    Worker(given, **json.loads((given / "job.json").read_text())).serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a peer's threads may never end
