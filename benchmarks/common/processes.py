"""Start processes that can import the benchmarks, and wait for them."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[bytes]


class Failed(RuntimeError):
    """A process that exited with an error or hung, with the last error that it printed."""


def environment(variables: Mapping[str, object] = {}) -> dict[str, str]:
    """Return this process's environment with the repository on `PYTHONPATH`, and `variables`."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    added = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return os.environ | added | {name: str(value) for name, value in variables.items()}


def paceline(
    *words: object, folder: Path | None = None, variables: Mapping[str, object] = {}
) -> str:
    """Run a `paceline` command and return what it prints; exit with its output if it fails."""
    command = ["paceline", *map(str, words)]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment(variables),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def start(
    command: Sequence[object],
    log: Path,
    variables: Mapping[str, object] = {},
    folder: Path | None = None,
) -> Process:
    """Start a process in a session of its own, what it prints appended to `log`."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env=environment(variables),
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def wait_for_all(processes: Sequence[Process], log: Path, seconds: float) -> None:
    """Wait until all have exited, and end their sessions; raise `Failed` unless all succeeded."""
    try:
        codes = [process.wait(seconds) for process in processes]
    except subprocess.TimeoutExpired:
        raise Failed(f"it hung for {seconds:g} s") from None
    finally:
        for process in processes:
            _end_session(process)
    if any(codes):
        raise Failed(_last_error(log.read_text(errors="replace")) or f"exit codes {codes}")


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nothing listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _last_error(text: str) -> str:
    lines = (re.sub(r"^\[rank\d+\]: ", "", line.strip("│╰╯─ ")) for line in text.splitlines())
    printed = [line for line in lines if line]
    errors = [line for line in printed if "Error" in line] or printed
    return errors[-1] if errors else ""


def _end_session(process: Process) -> None:
    """Kill the process and what a launcher may have left behind in its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
