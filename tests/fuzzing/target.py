"""A target of fuzzing: valid inputs to start from, and the reader that must survive any input."""

import importlib
import pkgutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from paceline.specs import PacelineError
from paceline.specs.base import Spec
from paceline.specs.owned_files import write_owned


@dataclass(frozen=True)
class Target:
    """One file format or message.

    `consume` reads any bytes and raises nothing: it catches the errors that the reader is allowed
    to raise. It gets a folder of its own.
    """

    seeds: Callable[[], list[bytes]]
    consume: Callable[[bytes, Path], None]


def toml_target(valid: Spec) -> Target:
    """Return the target of a file in TOML."""

    def consume(data: bytes, folder: Path) -> None:
        write_owned(folder / "spec.toml", data)
        with suppress(PacelineError):
            type(valid).read(folder / "spec.toml")

    written = tomli_w.dumps(valid.model_dump(mode="json", exclude_none=True)).encode()
    return Target(lambda: [written], consume)


def names() -> list[str]:
    """Return the names of all targets: each is a file in `targets/`, with a `TARGET`."""
    path = importlib.import_module("fuzzing.targets").__path__
    return sorted(module.name for module in pkgutil.iter_modules(path))


def named(name: str) -> Target:
    """Return a target by its name."""
    target = importlib.import_module(f"fuzzing.targets.{name}").TARGET
    assert isinstance(target, Target)
    return target
