"""The folder in which a running testbed keeps its sockets, settings and logs."""

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from paceline.specs.errors import PacelineError
from paceline.testbed.testbed_spec import check_name

_LONGEST_SOCKET_PATH_BYTES = 107
_REMOVAL_SECONDS = 5.0


@dataclass(frozen=True)
class StateFolder:
    """The files of one testbed, by what they are for."""

    path: Path

    @property
    def socket(self) -> Path:
        """Where the holder takes requests."""
        return self.path / "holder.sock"

    @property
    def munge_socket(self) -> Path:
        """Where munged gives Slurm its credentials."""
        return self.path / "munge.sock"

    @property
    def slurm_conf(self) -> Path:
        """Slurm's settings, named by SLURM_CONF for every Slurm command."""
        return self.path / "slurm.conf"

    @property
    def logs(self) -> Path:
        """The folder of the daemons' logs."""
        return self.path / "log"

    def log(self, of: str) -> Path:
        """The log of one daemon: holder, munged, slurmctld, or a node's slurmd by node name."""
        return self.logs / f"{of}.log"

    def exists(self) -> bool:
        """Whether the folder is there."""
        return self.path.is_dir()

    def create(self) -> None:
        """Make the folder, for its owner alone."""
        self.path.mkdir(mode=0o700)
        self.logs.mkdir()

    def remove(self) -> None:
        """Remove the folder."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while True:
            try:
                shutil.rmtree(self.path)
                return
            except FileNotFoundError:
                return
            except OSError:
                # A daemon that is being killed may still write its last line.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def last_log_lines(self, lines: int = 8) -> str:
        """The end of each log that has something, for an error message."""
        parts = []
        for path in sorted(self.logs.glob("*.log")):
            ending = path.read_text(errors="replace").rstrip().splitlines()[-lines:]
            if ending:
                parts.append("\n".join([f"{path.name}:", *(f"  {line}" for line in ending)]))
        return "\n".join(parts) or "(the logs are empty)"


def state_folder(name: str) -> StateFolder:
    """The folder of the testbed of that name, there or not, for this user."""
    check_name(name)
    folder = StateFolder(parent_folder() / name)
    longest = max(len(os.fsencode(path)) for path in (folder.socket, folder.munge_socket))
    if longest > _LONGEST_SOCKET_PATH_BYTES:
        raise PacelineError(
            f"the path {folder.path} is too long to hold a Unix socket",
            fix="choose a shorter --name, or unset XDG_RUNTIME_DIR",
        )
    return folder


def parent_folder() -> Path:
    """The folder in which this user's testbeds have theirs."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and _is_ours(Path(runtime)):
        return Path(runtime) / "paceline"
    return Path(f"/tmp/paceline-{os.getuid()}")  # noqa: S108 - ownership and mode are checked


@contextmanager
def locked_parent_folder() -> Iterator[None]:
    """Have the folder of the testbeds, alone: no other start or removal meanwhile."""
    while True:
        folder = _claimed_parent_folder()
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat()):
                yield
                return
        finally:
            os.close(descriptor)


def remove_empty_parent_folder() -> None:
    """Remove the folder of the testbeds after the last of them."""
    with locked_parent_folder(), suppress(OSError):
        parent_folder().rmdir()


def _claimed_parent_folder() -> Path:
    """Make the folder of the testbeds; refuse one that somebody else could write to."""
    parent = parent_folder()
    parent.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(parent) or stat.S_IMODE(parent.lstat().st_mode) & 0o077:
        raise PacelineError(
            f"{parent} belongs to another user, or others can open it",
            fix=f"remove it, or make it yours alone: chmod 700 {parent}",
        )
    return parent


def _is_ours(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    is_own_folder = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return is_own_folder and os.access(path, os.W_OK)
