"""Builds the C++ of the simulated device once, in a folder of the user's cache.

Run as a program, this file compiles into the folder that it is given: in a process of its own,
since torch loads what it has compiled.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch

SOURCES = Path(__file__).parent / "csrc"
NAME = "paceline_simulated_extension"
_COMPLETE = "complete"
"""A file beside a library that was linked to its end."""


class CannotBuild(RuntimeError):
    """The extension cannot be built here: no compiler, no ninja, or no private folder."""


def extension() -> ModuleType:
    """Return the loaded extension, built before if it was not."""
    spec = importlib.util.spec_from_file_location(NAME, library())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def library() -> Path:
    """Return the extension's file; the first call on a machine builds it, in about a minute."""
    folder = _cache() / _key()
    if not (folder / _COMPLETE).exists():
        with _locked(_cache()):  # workers that start together build once
            if not (folder / _COMPLETE).exists():
                _build(folder)
    return folder / f"{NAME}.so"


def is_built() -> bool:
    """Return whether `library` has nothing to build."""
    return why_not() is None and (_cache() / _key() / _COMPLETE).exists()


def why_not() -> str | None:
    """Return what is missing to build the extension, or None."""
    missing = [program for program in (_compiler(), "ninja") if shutil.which(program) is None]
    if not missing:
        return None
    return f"needs {' and '.join(missing)} on PATH (apt install g++ ninja-build python3-dev)"


def _compiler() -> str:
    return os.environ.get("CXX", "c++")


def _cache() -> Path:
    """The folder of builds; refused if others could write the code that is loaded from it."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "paceline-simulated"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.stat()
    if state.st_uid != os.geteuid() or state.st_mode & 0o077:
        raise CannotBuild(f"{folder} must belong to you and have mode 0700")
    return folder


def _key() -> str:
    """A hash of all that the library depends on."""
    if missing := why_not():
        raise CannotBuild(f"the simulated device {missing}")
    version = subprocess.run([_compiler(), "--version"], check=True, capture_output=True)
    digest = hashlib.sha256(f"{torch.__version__} {sys.version}".encode() + version.stdout)
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(folder: Path) -> None:
    # What a killed build has left includes a lock of torch's that nobody would release.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    # -P: the files beside this one are not modules for the whole process.
    command = [sys.executable, "-P", __file__, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"the simulated device was not built:\n{done.stdout}{done.stderr}")
    (folder / _COMPLETE).touch()


def _compile(folder: Path) -> None:
    from torch.utils import cpp_extension  # noqa: PLC0415 - loads setuptools

    cpp_extension.load(
        NAME,
        [str(SOURCES / "extension.cpp")],
        extra_cflags=["-O1", "-g0", "-Wall"],
        build_directory=str(folder),
    )


if __name__ == "__main__":
    _compile(Path(sys.argv[1]))
