"""Import of the user's script, and calls of its function."""

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.specs import PacelineError
from paceline.user.training import Training

_described_by: ContextVar[str | None] = ContextVar("described_by", default=None)
"""The user's function while it is called only to describe a training, not to train."""


def load_module(path: Path) -> ModuleType:
    """Import a Python file as a module, with its folder on `sys.path` as for `python file.py`."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("__paceline_train__", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def use_copies(folder: Path, copies: Path) -> None:
    """Let imports from a folder, or from one below it, find their copies in another folder."""
    for index, entry in enumerate(sys.path):
        place = Path(entry).absolute()  # "" is the current directory
        if place.is_relative_to(folder):
            copy = copies / place.relative_to(folder)
            # Links in the copy lead back to the user's folder.
            if copy.is_dir() and copy.resolve().is_relative_to(copies.resolve()):
                sys.path[index] = str(copy)
    # Under the user's umask, others might be able to write bytecode that this user runs.
    sys.dont_write_bytecode = True


def call_function(path: Path, name: str) -> Any:
    """Call the named function of a file and return its result."""
    module = load_module(path)
    function = getattr(module, name, None)
    if not callable(function):
        raise PacelineError(
            f"{path.name} has no function {name}()",
            fix=f"write `def {name}() -> paceline.Training`, or name another: {path.name}:FUNCTION",
        )
    _check_callable_without_arguments(function, path, name)
    return function()


def _check_callable_without_arguments(function: Any, path: Path, name: str) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError:
        needed = ", ".join(
            each.name
            for each in inspect.signature(function).parameters.values()
            if each.default is each.empty
        )
        raise PacelineError(
            f"{name}({needed}) of {path.name} needs arguments, but Paceline calls it without any",
            fix=f"give defaults: def {name}({needed.split(', ')[0]}=…)",
        ) from None
    except ValueError:  # a builtin without a signature
        return


def training_of(file: Path, function: str, arguments: tuple[str, ...] = ()) -> Training:
    """Return the training that the user's function describes; raise if the function trains.

    `arguments`: the rest of the file's `sys.argv`.
    """
    with _describing(f"{function}() of {file.name}"), _called_with(file, arguments):
        given = call_function(file, function)
    if not isinstance(given, Training):
        raise PacelineError(
            f"{function}() of {file.name} returned a value of type {type(given).__name__}, not a"
            " paceline.Training",
            fix="end it with `return paceline.Training(…)`",
        )
    return given


def check_may_train() -> None:
    """Raise if the script is called only to describe its training."""
    function = _described_by.get()
    if function is not None:
        raise PacelineError(
            f"{function} has a loop of its own, which a dry run cannot follow",
            fix="name a function that returns the paceline.Training: TRAIN:FUNCTION",
        )


@contextmanager
def _called_with(file: Path, arguments: tuple[str, ...]) -> Iterator[None]:
    before, sys.argv = sys.argv, [str(file), *arguments]
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def _describing(function: str) -> Iterator[None]:
    token = _described_by.set(function)
    try:
        yield
    finally:
        _described_by.reset(token)
