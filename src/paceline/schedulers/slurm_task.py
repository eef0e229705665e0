"""One task of a Slurm job, `python -m paceline.schedulers.slurm_task RUN`: supervises its worker.

srun does not start a task again, and before the workers have met, none of them can tell that one is
missing: a small process beside each worker does both.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from paceline.observe.killed_workers import shell_code, tell_killed
from paceline.schedulers.slurm_client import Slurm
from paceline.specs import PacelineError, Run


def main() -> int:
    """Have the worker train, starting it again when it is killed; the exit code of the last one."""
    run = Run.open(Path(sys.argv[1]))
    generation = int(os.environ["PACELINE_GENERATION"])
    attempts = run.plan.faults.attempts
    code = _worker(run, joins=False)
    while code < 0 and run.has_begun(generation) and not run.outcome_file.exists():
        attempts -= 1
        if not attempts:
            break
        code = _worker(run, joins=True)
    if code and not run.has_begun(generation) and not _stands_by(run):
        _end_all(run, generation, code)
    return shell_code(code)


def _worker(run: Run, *, joins: bool) -> int:
    environment = os.environ | {"PACELINE_LAUNCHER_PID": str(os.getpid())}
    if joins:
        environment["PACELINE_JOINS"] = "1"
    command = [sys.executable, "-m", "paceline.train", str(run.path)]
    child = subprocess.Popen(command, env=environment)
    # Slurm may send its warnings to this process alone.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: child.send_signal(number))
    return child.wait()


def _stands_by(run: Run) -> bool:
    """Whether nobody waits for this task's worker."""
    return int(os.environ["SLURM_PROCID"]) >= run.job.workers


def _end_all(run: Run, generation: int, code: int) -> None:
    """End the other tasks, which wait for this one."""
    if code < 0:  # it could not say so itself
        rank = int(os.environ["SLURM_PROCID"])
        tell_killed(run, os.environ["SLURMD_NODENAME"], generation, rank, code)
    try:
        Slurm().call("scancel", f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}")
    except PacelineError as error:
        print(f"the other workers could not be ended: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
