"""A manifest as a file: YAML, as `kubectl` reads it."""

from pathlib import Path
from typing import Any

from paceline.schedulers.kinds.kubernetes.manifest import Object
from paceline.schedulers.site import Unreachable
from paceline.specs.owned_files import read_bounded

_MOST_BYTES = 1 << 20


def written(run_name: str, objects: list[Object]) -> str:
    """Return a manifest's text."""
    yaml = _yaml()
    title = f"# The job of the run {run_name}, written by Paceline.\n"
    parts = (
        yaml.safe_dump(each, sort_keys=False, allow_unicode=True, width=100) for each in objects
    )
    return title + "---\n".join(parts)


def read(file: Path) -> list[Object]:
    """Return the objects of a manifest."""
    text = read_bounded(file, _MOST_BYTES, own=True).decode()
    return [each for each in _yaml().safe_load_all(text) if each]


def _yaml() -> Any:
    try:
        import yaml  # noqa: PLC0415 -- it comes with the client
    except ImportError:
        raise not_installed() from None
    return yaml


def not_installed() -> Unreachable:
    """Return the error that the client library is missing."""
    return Unreachable(
        "Kubernetes needs its client library, which is not installed",
        fix='pip install "paceline[kubernetes]"',
    )
