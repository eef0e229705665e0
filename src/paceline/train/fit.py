"""The two entry points: `fit` runs the whole training loop, `start` leaves it to the user."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import FrameType

import torch
import torch.distributed as dist

from paceline.comm.binding.near_cores import use_near_cores
from paceline.comm.device_kind import device_kind
from paceline.comm.groups import Groups
from paceline.observe.event_writer import EventWriter
from paceline.observe.progress_bar import progress_bar
from paceline.observe.usage.power_limit import limited_power
from paceline.observe.usage.usage_sampler import usage_written
from paceline.parallel.check.forked_check import refuse_differences
from paceline.parallel.fitted_layout import fitting
from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Faults, Layout, PacelineError, Placement, Run, default_sync
from paceline.train.elastic.checkpointing import Checkpointing
from paceline.train.elastic.device_failure import device_failures_told, usable_device
from paceline.train.elastic.joined_groups import joined_elastic
from paceline.train.monitor.profiler import Tracing
from paceline.train.monitor.step_windows import Progress
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.study_overrides import as_studied
from paceline.train.trainer import Trainer
from paceline.user.mistakes import users_code
from paceline.user.script import check_may_train
from paceline.user.training import Training

started_trainers = 0
"""Number of trainers started by this process; a worker checks that the user's function did."""


def start(training: Training) -> AbstractContextManager[Trainer]:
    """Start a trainer on this worker's device, connected to the other workers of the run.

    Under `python train.py` there is one worker and no run folder; under `paceline run` and
    `paceline submit` the same code trains on all workers.
    """
    return _started(training, own_loop=True)


@contextmanager
def _started(training: Training, *, own_loop: bool) -> Iterator[Trainer]:
    """Start a trainer; `own_loop`: whether the user's code runs between the steps."""
    global started_trainers  # noqa: PLW0603 -- a fact about the process, not a setting
    check_may_train()
    if dist.is_initialized():
        raise PacelineError(
            "torch.distributed is initialized already, but Paceline creates the process groups",
            fix="remove init_process_group() from the script",
        )
    folder = run_folder()
    run = Run.open(folder) if folder else None
    written, training = training, as_studied(training, run.job) if run else training
    here = placement(run.job.first_generation if run else 0)
    if run is not None:
        _check_divided(training, run, here)
    writer = EventWriter(run.events, here.node) if run else None
    device = usable_device(here, writer)
    if run is not None:
        use_near_cores(device_kind(), device)
    with (
        joined_elastic(run, here, device, run.job.port if run else None, _fitting(run)) as (
            groups,
            agent,
        ),
        _limited(groups, run.job.power_limit_watts if run else None),
        _usage_of_node(groups, writer),
        device_failures_told(groups, writer),
    ):
        checkpointing: Checkpointing | None = None
        sync = run.plan.sync if run else default_sync()
        telemetry = Telemetry(
            groups,
            writer,
            lambda: checkpointing is not None and checkpointing.is_due_by_clock,
            lambda: agent is not None and agent.wanted,
            waits=not sync.replicas_differ,
            tracing=_tracing(run, groups, writer) if run and writer else None,
        )
        if run and writer:
            checkpointing = Checkpointing(
                run, training, groups, writer, telemetry, agent, written=written
            )
        layout = run.plan.layout if run else Layout()
        faults = run.plan.faults if run else Faults()
        with users_code("building the training", "check the model and the optimizer"):
            trainer = Trainer(
                *(training, layout, groups, telemetry, checkpointing, sync, faults, agent),
                own_loop=own_loop,
            )
        started_trainers += 1
        with _stopping_by_signal(telemetry, run is not None):
            yield trainer
            outcome = trainer.conclude()
            if run is None and outcome == "stopped":
                done, all_steps = trainer.progress.steps, trainer.steps
                print(f"stopped early at {done} of {all_steps} steps", file=sys.stderr)
            telemetry.progress.stopped = outcome != "finished"
            telemetry.finished(outcome, trainer.stopped_early)
            trainer.close()


def _check_divided(training: Training, run: Run, here: Placement) -> None:
    """Refuse a training that would differ on several workers, on worker 0 of a run's first start.

    The other workers meet meanwhile, and wait for it.
    """
    layout = run.plan.layout
    divided = layout.workers > 1 or layout.micro_batch is not None
    if not (run.job.check and divided and here.rank == 0 and here.generation == 0):
        return

    def bind() -> tuple[torch.device, int]:
        device = device_kind().bind(here)
        return device, device_kind().memory_bytes(device, here)

    for note in refuse_differences(training, layout, bind):
        print(f"check: {note.what}: {note.text}", file=sys.stderr)


def _fitting(run: Run | None) -> Callable[[int], int] | None:
    """Return the function from members to workers that can train; None without regrouping."""
    if run is None or not run.plan.faults.regroup:
        return None
    return partial(fitting, run.plan.layout)


def _limited(groups: Groups, watts: float | None) -> AbstractContextManager[None]:
    """Cap this worker's GPU power within the block, if a limit is given."""
    if watts is None:
        return nullcontext()
    gpu = groups.device.index if groups.device.type == "cuda" else None
    return limited_power(watts, gpu, groups.placement.node)


def _usage_of_node(groups: Groups, writer: EventWriter | None) -> AbstractContextManager[None]:
    """Record this node's resource usage within the block, on one of its workers, in a run."""
    here, interface = groups.placement, groups.interface
    if writer is None or here.joins or not here.leads_node:
        return nullcontext()
    return usage_written(
        writer,
        node=here.node,
        generation=here.generation,
        workers=here.local_workers,
        interface=interface.name if interface else None,
        gpus=groups.device.type == "cuda",
    )


def _tracing(run: Run, groups: Groups, writer: EventWriter) -> Tracing | None:
    steps = run.job.trace_steps
    return Tracing(run, groups, writer, steps) if steps else None


def fit(training: Training) -> Progress:
    """Train to the end and return the progress."""
    alone = run_folder() is None
    with (
        _started(training, own_loop=False) as trainer,
        progress_bar("training", total=trainer.steps, unit="steps", show=alone) as advance,
    ):
        for batch in trainer:
            taken = trainer.step(batch)
            advance(taken.step, f"  loss {trainer.progress.loss:.4g}")
    done = trainer.progress
    if alone:
        rate = done.samples / max(done.seconds, 1e-9)
        print(
            f"{done.steps} steps, {done.samples} samples in {done.seconds:.1f} s"
            f" ({rate:.0f} samples/s), final loss {done.loss:.6g}",
            file=sys.stderr,
        )
    return done


@contextmanager
def _stopping_by_signal(telemetry: Telemetry, in_run: bool) -> Iterator[None]:
    """Within the block, in a run, let all workers stop after a step when one gets a signal.

    SIGUSR1 is the warning before a time limit, which also requests a requeue.
    """

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        telemetry.stop_asked = True
        telemetry.requeue_asked |= number == signal.SIGUSR1

    signals = (signal.SIGTERM, signal.SIGUSR1) if in_run else ()
    before = {number: signal.signal(number, note) for number in signals}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
