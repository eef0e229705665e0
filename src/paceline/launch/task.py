"""One task of a job under Slurm, `python -m paceline.launch.task RUN`: looks after its worker.

srun does not start a task again, and before the workers have met, none of them can tell that one is
missing: a small process beside each worker does both.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from paceline.cluster.slurm import Slurm
from paceline.observe.events import EventWriter
from paceline.specs import Failed, PacelineError, Run


def main() -> int:
    """Have the worker train, starting it again when it is killed; the exit code of the last one."""
    run = Run.open(Path(sys.argv[1]))
    generation = int(os.environ["PACELINE_GENERATION"])
    attempts = run.plan.faults.attempts
    code = _worker(run, joins=False)
    while code < 0 and _have_met(run, generation) and not run.outcome_file.exists():
        attempts -= 1
        if not attempts:
            break
        code = _worker(run, joins=True)
    if code and not _have_met(run, generation):
        _end_all(run, generation, code)
    return 128 - code if code < 0 else code


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


def _have_met(run: Run, generation: int) -> bool:
    newest = run.newest_generation
    return newest is not None and newest >= generation


def _end_all(run: Run, generation: int, code: int) -> None:
    """End the other tasks, which wait for this one."""
    node = os.environ["SLURMD_NODENAME"]
    if code < 0:  # it could not say so itself
        EventWriter(run.events, node).write(
            Failed(
                time=time.time(),
                node=node,
                generation=generation,
                rank=int(os.environ["SLURM_PROCID"]),
                message=f"killed by {signal.Signals(-code).name}",
            )
        )
    try:
        Slurm().call("scancel", f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}")
    except PacelineError as error:
        print(f"the other workers could not be ended: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
