"""Commands with a time limit, and a testbed's processes as seen from the host."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from paceline.specs.errors import PacelineError

HOLDER_MODULE = "paceline.testbed.holder"
KEEP = b"keep\n"  # tells a holder to outlive the process that started it

_COMMAND_SECONDS = 15.0
_ENDING_SECONDS = 15.0
_OUTSIDE_PROGRAMS = ("setsid", "unshare")


def search_path() -> str:
    """Return PATH with the folders of system daemons, which ordinary users often lack."""
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/sbin", "/sbin"]
    return os.pathsep.join(dict.fromkeys(folders))


def namespace_options() -> list[str]:
    """Return the options of `unshare` for a testbed: private namespaces, also without root."""
    own_users = ["--user", "--map-root-user", "--map-auto"] if os.geteuid() != 0 else []
    namespaces = ["--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc"]
    # Later mounts on the host must appear inside, but not the other way round.
    return [*own_users, *namespaces, "--propagation=slave", "--kill-child"]


def run(command: Sequence[str], *, feed: str | None = None) -> str:
    """Run a short command and return its output; raise with its error output if it fails."""
    try:
        done = subprocess.run(
            command,
            input=feed,
            stdin=subprocess.DEVNULL if feed is None else None,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PacelineError(
            f"`{' '.join(command)}` did not answer within {_COMMAND_SECONDS:g} s",
            fix="check whether the machine is overloaded, then try again",
        ) from None
    if done.returncode != 0:
        raise PacelineError(
            f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()}",
            fix="see 'Troubleshooting' in docs/testbed.md",
        )
    return done.stdout


def children_of(parent: int) -> list[int]:
    """Return the process IDs of a process's children."""
    found = []
    for pid in _process_ids():
        try:
            # The name in brackets may contain spaces; the fields after it do not.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(pid)
    return found


def holders_of(state: Path) -> dict[int, str]:
    """Return the holder processes of the testbed in this folder: process ID to program name.

    They are found by their arguments, because the kernel can reuse a recorded process ID.
    """
    ending = [b"-m", HOLDER_MODULE.encode(), os.fsencode(state)]
    found = {}
    for pid in _process_ids():
        try:
            path = Path(f"/proc/{pid}")
            arguments = (path / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            is_ours = path.stat().st_uid == os.getuid()
        except OSError:
            continue
        if is_ours and arguments[-3:] == ending:
            found[pid] = Path(os.fsdecode(arguments[0])).name
    return found


def end_holders(state: Path) -> None:
    """Kill every process of a testbed, and return when the last one has ended.

    This kills the namespace's first process, not the `unshare` outside it: the kernel then ends
    everything inside, and `unshare` ends after that.
    """
    deadline = time.monotonic() + _ENDING_SECONDS
    while holders := holders_of(state):
        inside = [pid for pid, program in holders.items() if program not in _OUTSIDE_PROGRAMS]
        _kill(inside or holders)
        if time.monotonic() > deadline:
            raise PacelineError(
                f"the testbed's processes {sorted(holders)} don't end",
                fix="look for processes stuck on a file system (state D in ps), then try again",
            )
        time.sleep(0.02)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended by itself


def _process_ids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
