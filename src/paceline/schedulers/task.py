"""Supervision of one worker inside a job: `python -m paceline.schedulers.task RUN`.

Schedulers do not restart a task, and until the rendezvous is complete no worker can detect that
another one is missing. This small process beside each worker does both. It also ends a worker that
hangs when the others, who went on without it, have ended the training: the job would last until
its time limit.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from paceline.observe.killed_workers import shell_code, tell_killed
from paceline.schedulers.scheduler import Scheduler, Task
from paceline.schedulers.task_placement import current_task
from paceline.specs import PacelineError, Run
from paceline.specs.owned_files import open_owned

CHECK_SECONDS = 30.0
"""Between two looks at the run folder, which thousands of these processes share."""


def main() -> int:
    """Start the worker, restart it when it is killed, and return its last exit code."""
    run = Run.open(Path(sys.argv[1]))
    found = current_task()
    if found is None:
        raise PacelineError(
            "no scheduler started this process", fix="use `paceline submit TRAIN --nodes N`"
        )
    scheduler, task = found
    generation = int(os.environ["PACELINE_GENERATION"])
    attempts = run.plan.faults.attempts
    code = _worker(run, joins=False)
    while code < 0 and run.has_begun(generation) and not run.outcome_file.exists():
        attempts -= 1
        if not attempts:
            break
        code = _worker(run, joins=True)
    is_spare = task.rank >= run.job.workers
    if code and not run.has_begun(generation) and not is_spare:
        _end_all(run, scheduler, task, generation, code)
    return shell_code(code)


def _worker(run: Run, *, joins: bool) -> int:
    environment = os.environ | {"PACELINE_LAUNCHER_PID": str(os.getpid())}
    if joins:
        environment["PACELINE_JOINS"] = "1"
    command = [sys.executable, "-m", "paceline.train", str(run.path)]
    child = subprocess.Popen(command, env=environment)
    # The scheduler may signal this process alone.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: child.send_signal(number))
    return exit_code(child, run.outcome_file.exists)


def exit_code(
    child: "subprocess.Popen[bytes]", is_over: Callable[[], bool], seconds: float = CHECK_SECONDS
) -> int:
    """Wait for a worker; kill it if it is still there a while after the training's end."""
    was_over = False
    while True:
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            if was_over:
                child.kill()
            was_over = is_over()


def _end_all(run: Run, scheduler: Scheduler, task: Task, generation: int, code: int) -> None:
    """End the other tasks, which wait for this one in the rendezvous."""
    if code < 0:  # a killed worker writes no event itself
        tell_killed(run, task.node, generation, task.rank, code)
    try:
        scheduler.end_tasks()
    except PacelineError as error:
        print(f"the other workers could not be ended: {error}", file=sys.stderr)
        # As in a container without the scheduler's commands: their tasks look for this file.
        with suppress(FileExistsError), open_owned(run.outcome_file, "x") as file:
            file.write(f"{shell_code(code)}\n")


if __name__ == "__main__":
    sys.exit(main())
