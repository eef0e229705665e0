"""The folder of a running testbed: its sockets, configuration and logs."""

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
from paceline.specs.owned_files import make_folder
from paceline.testbed.testbed_spec import check_name

_LONGEST_SOCKET_PATH_BYTES = 107
_REMOVAL_SECONDS = 5.0


@dataclass(frozen=True)
class StateFolder:
    """The paths of one testbed's files."""

    path: Path

    @property
    def socket(self) -> Path:
        """The holder's request socket."""
        return self.path / "holder.sock"

    @property
    def munge_socket(self) -> Path:
        """The socket of munged, which authenticates Slurm's messages."""
        return self.path / "munge.sock"

    @property
    def slurm_conf(self) -> Path:
        """Slurm's configuration file; SLURM_CONF names it for every Slurm command."""
        return self.path / "slurm.conf"

    @property
    def logs(self) -> Path:
        """The folder of the daemons' logs."""
        return self.path / "log"

    def log(self, of: str) -> Path:
        """Return a daemon's log file; `of`: holder, munged, slurmctld, or a node (its slurmd)."""
        return self.logs / f"{of}.log"

    def exists(self) -> bool:
        """Whether the folder exists."""
        return self.path.is_dir()

    def create(self) -> None:
        """Create the folder, accessible only to its owner."""
        make_folder(self.path, share=False)
        make_folder(self.logs)

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
                # A dying daemon may still write its last line.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def last_log_lines(self, lines: int = 8) -> str:
        """Return the end of each log that is not empty, for an error message."""
        parts = []
        for path in sorted(self.logs.glob("*.log")):
            ending = path.read_text(errors="replace").rstrip().splitlines()[-lines:]
            if ending:
                parts.append("\n".join([f"{path.name}:", *(f"  {line}" for line in ending)]))
        return "\n".join(parts) or "(the logs are empty)"


def state_folder(name: str) -> StateFolder:
    """Return the folder of this user's testbed of that name; it need not exist."""
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
    """Return the parent of this user's testbed folders."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and _is_ours(Path(runtime)):
        return Path(runtime) / "paceline"
    return Path(f"/tmp/paceline-{os.getuid()}")  # noqa: S108 - ownership and mode are checked


@contextmanager
def locked_parent_folder() -> Iterator[None]:
    """Lock the parent folder for the block: no other testbed starts or is removed meanwhile."""
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
    """Remove the parent folder if it has no testbeds left."""
    with locked_parent_folder(), suppress(OSError):
        parent_folder().rmdir()


def _claimed_parent_folder() -> Path:
    """Create the parent folder; refuse one that another user owns or can access."""
    parent = parent_folder()
    make_folder(parent, share=False, exist_ok=True)
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
