"""Files and folders that only their owner can write, whatever the umask.

Paceline runs the programs that a run's folder names and loads the weights in it. So it creates
every file there with an explicit mode, and trusts none that another user owns or can write. The
group can read a file exactly if it can read the file's folder; `--share` decides for the run's.
"""

import errno
import os
import pwd
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from paceline.specs.errors import PacelineError

_GROUP_READS = 0o040
_OTHERS_WRITE = 0o022


class NotOwned(PacelineError):
    """A file or folder that another user owns or can write."""


def group_reads(folder: Path) -> bool:
    """Return whether a folder's group can read it."""
    return bool(folder.stat().st_mode & _GROUP_READS)


def private_umask(*, share: bool) -> int:
    """Return the umask under which other programs create files for the owner, or the group."""
    return 0o027 if share else 0o077


def make_folder(path: Path, *, share: bool | None = None, exist_ok: bool = False) -> None:
    """Create a folder with mode 0700, or 0750 if shared (None: as the folder that it is in)."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _set_mode(descriptor, 0o750 if _shared(path, share) else 0o700)
    finally:
        os.close(descriptor)


def open_owned(path: Path, mode: str, *, share: bool | None = None, buffering: int = -1) -> IO[Any]:
    """Open a file to write, as `open` does, with mode 0600, or 0640 if shared.

    Links are not followed, and an existing file must be this user's own.
    """

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NOFOLLOW, 0o600)
        try:
            check_owner(os.fstat(descriptor), path)
            _set_mode(descriptor, 0o640 if _shared(path, share) else 0o600)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    return open(path, mode, buffering, opener=opener)


def write_owned(path: Path, contents: str | bytes, *, share: bool | None = None) -> None:
    """Write a file with mode 0600, or 0640 if shared; readers see the old or the new file."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(contents.encode() if isinstance(contents, str) else contents)
            _set_mode(descriptor, 0o640 if _shared(path, share) else 0o600)
        draft.rename(path)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a write says what failed, not where
        raise


def check_owned_folder(folder: Path, *, deep: bool = False) -> None:
    """Refuse a folder if another user owns or can write it or an entry; `deep`: at any depth."""

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # it may be deleted meanwhile
            raise error

    for path, folders, files, descriptor in os.fwalk(folder, onerror=fail):
        check_owned(os.fstat(descriptor), Path(path), folder)
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                check_owned(found, Path(path) / name, folder)
        if not deep:
            folders.clear()


def check_owned(found: os.stat_result, path: Path, whole: Path | None = None) -> None:
    """Refuse a file or folder that another user owns or can write.

    `found` is the state of the open file, or of the folder's entry, so that nobody can exchange it
    after this check. `whole` is the folder to mend.
    """
    check_owner(found, path, whole)
    # A link's own mode says nothing, and only its owner can change it in a folder that passes.
    if found.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(found.st_mode):
        raise NotOwned(
            f"other users can write {path} (mode {stat.S_IMODE(found.st_mode):04o}), so it may not"
            " be what you wrote",
            fix="see that nobody has changed it, then take their write permission away:"
            f" chmod -R go-w {whole or path}",
        )


def check_owner(found: os.stat_result, path: Path, whole: Path | None = None) -> None:
    """Refuse a file or folder that belongs to another user."""
    if found.st_uid != os.geteuid():
        raise NotOwned(
            f"{path} belongs to {_user(found.st_uid)}, and you are {_user(os.geteuid())}",
            fix="if you trust what it says, let an administrator make it yours:"
            f" chown -R {_user(os.geteuid())} {whole or path}",
        )


def read_bounded(path: Path, most_bytes: int, *, own: bool = False, or_root: bool = False) -> bytes:
    """Return a file's contents; refuse more than `most_bytes`.

    `own`: refuse a file that another user owns or can write, and what is no file. `or_root`: but
    accept one that only root can write.
    """
    descriptor = os.open(path, os.O_RDONLY | (os.O_NONBLOCK if own else 0))
    with os.fdopen(descriptor, "rb", closefd=True) as file:
        found = os.fstat(descriptor)
        if own:
            if not (or_root and found.st_uid == 0 and not found.st_mode & _OTHERS_WRITE):
                check_owned(found, path)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it is no file", str(path))
        contents = file.read(most_bytes + 1)
    if len(contents) > most_bytes:
        raise PacelineError(
            f"{path} has more than {most_bytes:,} bytes, which is more than Paceline ever writes"
            " there",
            fix="look at what it is; it was not read any further",
        )
    return contents


def _shared(path: Path, share: bool | None) -> bool:
    return group_reads(path.parent) if share is None else share


def _set_mode(descriptor: int, mode: int) -> None:
    found = os.fstat(descriptor)
    # A folder keeps the bit by which its files belong to a project's group.
    wanted = mode | (found.st_mode & stat.S_ISGID if stat.S_ISDIR(found.st_mode) else 0)
    if stat.S_IMODE(found.st_mode) != wanted:
        os.fchmod(descriptor, wanted)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
