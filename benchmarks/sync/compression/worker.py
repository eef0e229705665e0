"""One rank, started as `python -m benchmarks.sync.compression.worker WANTED.json FOUND.jsonl`.

Every run has process groups and a trainer of its own, in a process that stays for all of them.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.sync.compression.tasks import TASKS, layers_to_count, training_of
from paceline.comm.groups import Groups
from paceline.comm.rendezvous import Rendezvous, hosted_store, reached_store
from paceline.membership.rendezvous.node_rendezvous import NodeRendezvous
from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Layout, PacelineError, Run, SyncSettings
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.trainer import Trainer
from paceline.user.training import Training

CPU = torch.device("cpu")


class Worker:
    """A rank of a run that is one in name only: its folder is where the workers meet."""

    def __init__(self) -> None:
        folder = run_folder()
        assert folder is not None
        self._placement = placement()
        with NodeRendezvous(Run(folder), self._placement) as meeting:
            interface = meeting.find_interface()
            store = hosted_store(interface) if self._placement.rank == 0 else None
            own = f"{store.host} {store.port}" if store else ""
            host, port = meeting.exchange(own, lambda arrivals: arrivals[0]).split()
        store = store or reached_store(host, int(port), lambda: False)
        self._rendezvous = Rendezvous(store, meeting.secret, interface)

    @property
    def writes(self) -> bool:
        """Whether this rank says what was found."""
        return self._placement.rank == 0

    def do(self, what: str, **wanted: Any) -> dict[str, Any]:
        """One run."""
        return self._count(**wanted) if what == "wire" else self._learn(**wanted)

    def _count(self, sync: str, width: int, warmup: int, steps: int) -> dict[str, Any]:
        """Bytes that each worker's interface sent in a step, acknowledgements and all."""
        with self._trainer(layers_to_count(width), sync) as trainer:
            batches = iter(trainer)
            for _ in range(warmup):
                trainer.step(next(batches))
            # Once all are here, all that was sent has also been received.
            dist.barrier()
            before = self._sent_bytes()
            for _ in range(steps):
                trainer.step(next(batches))
            dist.barrier()
            mine = torch.tensor((self._sent_bytes() - before) / steps)
            every = [torch.empty_like(mine) for _ in range(self._placement.workers)]
            dist.all_gather(every, mine)
        return {"bytes_per_step": [float(each) for each in every]}

    def _learn(
        self,
        task: str,
        sync: str,
        rate: float,
        seed: int,
        *,
        warmup_part: float,
        other_order: bool,
        steps: int | None,
    ) -> dict[str, Any]:
        """What is held out, judged after the last step."""
        made = TASKS[task](seed)
        made = replace(made, steps=steps or made.steps)
        training = training_of(made, rate, seed, order_seed=seed + 100 * other_order)
        if warmup_part:
            sync += f",warmup={round(warmup_part * made.steps)}"
        try:
            with self._trainer(training, sync) as trainer:
                for batch in trainer:
                    trainer.step(batch)
                found = trainer.evaluate(made.held_out, made.metrics)
        except PacelineError as error:  # the loss became infinite, which all ranks find together
            return {"failed": str(error)}
        return {"loss": found.loss, **found.metrics}

    @contextmanager
    def _trainer(self, training: Training, sync: str) -> Iterator[Trainer]:
        self._placement = replace(self._placement, generation=self._placement.generation + 1)
        groups = Groups(self._placement, CPU, self._rendezvous)
        layout = Layout(replicas=self._placement.workers)
        trainer = Trainer(
            training, layout, groups, Telemetry(groups, None), None, SyncSettings.parse(sync)
        )
        try:
            yield trainer
        finally:
            trainer.close()
            groups.leave()

    def _sent_bytes(self) -> int:
        """As the kernel counts them in this node, whose /sys may be that of the machine."""
        lines = Path("/proc/self/net/dev").read_text().splitlines()
        counters = next(line for line in lines if line.strip().startswith(self._interface))
        return int(counters.partition(":")[2].split()[8])

    @property
    def _interface(self) -> str:
        return f"{self._rendezvous.interface.name}:"


def main(wanted: str, found: str) -> None:
    """Do one run after the other, and say after each what was found."""
    torch.set_num_threads(1)
    worker = Worker()
    for each in json.loads(Path(wanted).read_text()):
        result = worker.do(**each)
        if worker.writes:
            with Path(found).open("a") as file:
                file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
