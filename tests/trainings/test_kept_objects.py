"""An average of the weights that the user's loop keeps itself, with `trainer.keep`."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import paceline
from paceline.checkpoints.folder import Folder
from paceline.schedulers.task_placement import run_folder
from paceline.specs import PacelineError, Run, Saving
from paceline.train.state.kept_objects import KeptObjects
from paceline.train.state.plain_state import from_plain, to_plain
from ranks import RankFailed, new_run, run_ranks
from train.trainings import classification
from trainings.comparison import LAYOUTS, Trained, plain_steps, seeded_model

STEPS, SAVED = 10, 4
DECAY = get_ema_multi_avg_fn(0.8)  # type: ignore[no-untyped-call]


class Counted:
    """A state of nested plain values."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[float, str]] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def training() -> paceline.Training:
    return classification(90, steps=STEPS)


def average_of(killed: bool) -> tuple[Trained, dict[int, tuple[float, str]]]:
    """Train and average; die one step after the checkpoint, if asked to."""
    folder = run_folder()
    assert folder is not None
    counted = Counted()
    with paceline.start(training()) as trainer:
        average = AveragedModel(trainer.model, multi_avg_fn=DECAY)
        trainer.keep("average", average)
        trainer.keep("counted", counted)
        for batch in trainer:
            step = trainer.step(batch).step
            average.update_parameters(trainer.model)
            counted.seen[step] = (0.5 * step, "seen")
            if killed and step == SAVED + 1:
                deadline = time.monotonic() + 60
                while SAVED not in Folder(Run(folder).checkpoints).steps():
                    assert time.monotonic() < deadline, "no checkpoint was written"
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
        return Trained.of([], average.module), counted.seen


@pytest.mark.parametrize("layout", ["1 worker", "2 replicas"])
def test_kept_objects_equal_a_plain_loop_after_a_kill(layout: str, tmp_path: Path) -> None:
    described = training()
    model = seeded_model(described)
    average = AveragedModel(model, multi_avg_fn=DECAY)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for samples in plain_steps(described):
        inputs, target = (torch.stack(column) for column in zip(*samples, strict=True))
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        average.update_parameters(model)
    workers = LAYOUTS[layout].workers
    run = new_run(tmp_path, workers, LAYOUTS[layout], Saving(every_steps=SAVED))
    with pytest.raises(RankFailed, match="died"):
        run_ranks(average_of, workers, tmp_path, True, run=run)
    run.write_job(run.job.model_copy(update={"first_generation": 1}))
    found = run_ranks(average_of, workers, tmp_path, False, run=run)
    found[0][0].check_equals(Trained.of([], average.module))
    assert found[0][1] == {step: (0.5 * step, "seen") for step in range(1, STEPS + 1)}


def different() -> None:
    """Keep a state that is another one on every worker."""
    counted = Counted()
    with paceline.start(training()) as trainer:
        counted.seen[trainer.rank] = (0.0, "mine")
        trainer.keep("counted", counted)
        for batch in trainer:
            trainer.step(batch)


def test_a_state_that_differs_between_workers_is_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path, 2, LAYOUTS["2 replicas"], Saving(every_steps=SAVED))
    with pytest.raises(RankFailed, match="differs between workers"):
        run_ranks(different, 2, tmp_path, run=run)


def test_a_state_survives_the_way_through_json() -> None:
    state = {"a": [1, (2.5, None)], 3: {"b": torch.arange(3)}, "c": "text", "d": True}
    tensors: list[torch.Tensor] = []
    back = from_plain(to_plain(state, "it", tensors), tensors)
    assert back.pop(3)["b"].tolist() == [0, 1, 2]
    assert back == {"a": [1, (2.5, None)], "c": "text", "d": True}


def test_what_cannot_be_kept_is_refused() -> None:
    kept = KeptObjects()
    with pytest.raises(PacelineError, match=r"without state_dict\(\)"):
        kept.keep("set", {1, 2})  # type: ignore[arg-type]
    kept.keep("counted", Counted())
    with pytest.raises(PacelineError, match="the name is taken"):
        kept.keep("counted", Counted())
    with pytest.raises(PacelineError, match="a set in its state"):
        to_plain({"a": {1}}, "it", [])
