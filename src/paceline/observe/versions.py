"""The software versions that a run was started with."""

import platform
import subprocess
from importlib import metadata
from pathlib import Path

import tomli_w

from paceline.specs.owned_files import write_owned

PACKAGES = ("paceline", "torch", "numpy", "pydantic")


def write_versions(path: Path, train: Path | None) -> None:
    """Write versions of Python, the system and packages, and the user's git revision, as TOML."""
    versions = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: found for name in PACKAGES if (found := version_of(name))},
        "training": _revision(train) if train else {},
    }
    write_owned(path, tomli_w.dumps(versions))


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def git(folder: Path, *words: str) -> str | None:
    """Return the output of a git command in a folder; None if it fails, as without a repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _revision(train: Path) -> dict[str, str | bool]:
    """Return the git commit of the user's file, and whether the file differs from it."""
    commit = git(train.parent, "rev-parse", "HEAD")
    if not commit:
        return {"file": str(train)}
    changed = git(train.parent, "status", "--porcelain", "--", train.name)
    return {"file": str(train), "commit": commit, "changed": bool(changed)}
