"""Runs on this machine: from a request, or from a run folder, to the end of the training."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

from paceline.jobs.code_snapshot import with_snapshot
from paceline.jobs.request import TrainingRequest
from paceline.jobs.run_lease import lease_held
from paceline.jobs.user_messages import SILENT, Messages, Receiver, short_place
from paceline.launch import room
from paceline.launch.follower import following
from paceline.launch.supervisor import LocalLaunch
from paceline.lease.lease import Lease
from paceline.observe.versions import write_versions
from paceline.remote.mirror import mirrored
from paceline.remote.places import create_run
from paceline.report import watch
from paceline.specs import FOLDER_GONE_EXIT_CODE, Run, RunFolderGone


def run_here(
    request: TrainingRequest, workers: int | None = None, messages: Messages = SILENT
) -> Run:
    """Train on this machine and return the run once it has ended.

    `workers`: by default the plan's, or one per accelerator. Call it in the main thread: during the
    run, Ctrl-C and SIGTERM stop the workers.
    """
    accelerators = room.accelerators()
    plan = request.chosen_plan(workers, max(1, accelerators))
    if warning := room.check_room(plan.layout.workers + request.spares, accelerators):
        messages.note(warning)
    job = request.job().model_copy(update={"devices_per_node": plan.layout.workers})
    run = create_run(request.runs, job, plan)
    run.write_job(with_snapshot(run, job))
    with mirrored(run), lease_held(run) as lease:
        train_here(run, lease, messages)
    return run


def train_here(run: Run, lease: Lease, messages: Messages = SILENT) -> None:
    """Start a run's workers on this machine and wait for their end."""
    launch = LocalLaunch(run, lease)
    with (
        following(run, messages.note),
        _stopping_on_signals(launch, messages.urgent) as stop_if_asked,
        _ending_without_folder(launch),
        run.told_if_gone(),
    ):
        with suppress(OSError):  # the disk may be full
            write_versions(run.versions_file, run.job.train)  # while the workers load torch
        messages.note(f"run: {short_place(run)}")

        def over() -> bool:
            stop_if_asked()
            return launch.poll() is not None

        if messages.live:
            watch(run, Console(stderr=True), until=over)
        while not over():
            launch.wait(0.2)
        if launch.poll() == FOLDER_GONE_EXIT_CODE or run.is_gone:
            raise RunFolderGone(run.path)
    lease.check()


@contextmanager
def _ending_without_folder(launch: LocalLaunch) -> Iterator[None]:
    """End the workers if the run's folder is gone, whether they or this process notice it."""
    try:
        yield
    except RunFolderGone:
        launch.kill()
        while launch.poll() is None:
            launch.wait(0.2)
        raise


@contextmanager
def _stopping_on_signals(launch: LocalLaunch, say: Receiver) -> Iterator[Callable[[], None]]:
    """Handle Ctrl-C and SIGTERM during the block: the first signal stops the workers after the
    current step, with their state saved; the second kills them. The yielded function does this.

    A handler, not an exception: one raised during garbage collection, for example, would be lost.
    The handler only counts, because it can interrupt the launcher anywhere.
    """
    asked = done = 0

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        del number, frame
        asked += 1

    def act() -> None:
        nonlocal done
        if asked and not done:
            say("stopping at the end of this step; Ctrl-C again ends it at once")
            launch.stop()
        if asked > max(1, done):
            launch.kill()
        done = asked

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield act
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
