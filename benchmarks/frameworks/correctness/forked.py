"""Run the jobs of one framework: import it once, then fork the workers of each job."""

import importlib
import os
import runpy
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from benchmarks.common.processes import free_ports
from benchmarks.frameworks.correctness.runs import (
    CASES,
    JOBS,
    NULL,
    PEERS,
    PLAIN,
    RUN_SECONDS,
    SETTINGS,
    Setting,
    Way,
    folder_of,
)

LEAVE_SECONDS = 15


def main(name: str, output: Path) -> None:
    (way,) = (each for each in (PLAIN, NULL, *PEERS) if each.name == name)
    importlib.import_module(way.module)
    for case in CASES:
        importlib.import_module(f"examples.{case}.train")
    for case in CASES:
        for setting in SETTINGS:
            folder = folder_of(output, way, case, setting)
            if not (folder / "figures.json").exists():
                print(f"{way.name}: {case}, {setting.title}", file=sys.stderr, flush=True)
                run(way, case, setting, folder)


def run(way: Way, case: str, setting: Setting, folder: Path) -> None:
    """Fork the workers of a job, and kill those that hang."""
    (port,) = free_ports(1)
    workers = []
    for rank in range(way.workers):
        if (pid := os.fork()) == 0:
            variables = setting.variables(folder) | placed(rank, way.workers, port)
            if way.reordered:
                variables["CORRECTNESS_REORDERED"] = "1"
            work(JOBS / case / way.script, folder / "log", variables)
        workers.append(pid)
    deadline = time.monotonic() + RUN_SECONDS
    while workers and time.monotonic() < deadline:
        workers = [pid for pid in workers if os.waitpid(pid, os.WNOHANG) == (0, 0)]
        time.sleep(0.05)
        if len(workers) < way.workers:  # the others may hang in destroying their process group
            deadline = min(deadline, time.monotonic() + LEAVE_SECONDS)
    for pid in workers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def placed(rank: int, workers: int, port: int) -> dict[str, str]:
    """Return the variables by which torchrun's workers find each other; none for a single one."""
    if workers == 1:
        return {}
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "correctness",
    }


def work(script: Path, log: Path, variables: dict[str, str]) -> None:
    """Run a job in this forked process, and end it."""
    output = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(variables)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
