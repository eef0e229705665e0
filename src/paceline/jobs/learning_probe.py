"""A probe of learning: a short training on this machine that measures its gradient noise."""

from dataclasses import dataclass
from pathlib import Path

from paceline.jobs.failed_run import refuse_failed
from paceline.jobs.local_run import train_here
from paceline.jobs.request import TrainingRequest
from paceline.jobs.run_lease import lease_held
from paceline.jobs.user_messages import SILENT, Messages, short_path
from paceline.launch.target import Target
from paceline.plan.training_profiles import load_training
from paceline.report import RunReader
from paceline.report.run.learning import learning_of
from paceline.specs import Learning, PacelineError, Run

PARTS = 8
"""Micro-batches of one worker: its batch needs parts whose gradients can be compared."""


@dataclass(frozen=True)
class LearningResult:
    """What a probe of learning measured."""

    learning: Learning
    run: Run


def probe_learning(
    target: Target,
    steps: int,
    workers: int = 1,
    runs: Path = Path("runs"),
    messages: Messages = SILENT,
) -> LearningResult:
    """Train for a few steps on this machine, and return the critical batch that they suggest."""
    batch = load_training(target).first_batch
    parts = {"micro_batch": -(-batch // PARTS)} if workers == 1 else {}
    request = TrainingRequest(
        target, layout=parts, saving={"every_steps": 0}, name="learning", runs=runs
    )
    plan = request.chosen_plan(workers, workers)
    job = request.job().model_copy(
        update={"devices_per_node": workers, "steps": steps, "noise_every": 1}
    )
    run = Run.create(runs, job, plan)
    with lease_held(run) as lease:
        train_here(run, lease, messages)
    state = RunReader(run).refresh()
    refuse_failed(run, state)
    learning = learning_of(run, state)
    if learning is None:
        raise PacelineError(
            f"{target.file.name} trained for {steps} steps, but its gradient noise was not measured"
            f" (the run: {short_path(run.path)})",
            fix="give more --steps; a training has none if it normalizes over the batch, calls"
            " paceline.gather, has several phases, or a batch of one sample",
        )
    return LearningResult(learning, run)
