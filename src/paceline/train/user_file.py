"""Loading the user's file and calling its function."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.specs import PacelineError


def load_module(path: Path) -> ModuleType:
    """Run a Python file as a module, its folder importable as `python file.py` has it."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("__paceline_train__", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def call_function(path: Path, name: str) -> Any:
    """What the named function of the file returns."""
    module = load_module(path)
    function = getattr(module, name, None)
    if not callable(function):
        raise PacelineError(
            f"{path.name} has no function {name}()",
            fix=f"write `def {name}() -> paceline.Training`, or name another: {path.name}:FUNCTION",
        )
    return function()
