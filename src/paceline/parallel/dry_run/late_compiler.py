"""torch's compiler, loaded only when code uses it: it takes a third as long as the rest of torch.

torch imports it wherever it builds optimizers or fake tensors, but only tells it there to leave
functions alone, and reads its settings. So inside `without_compiler()`, its package exists without
its own code having run; that runs as soon as code uses more.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

from paceline.comm.torch_internals import disabled_dispatch_modes
from paceline.comm.torch_loading import loading

_COMPILER = "torch._dynamo"
_USED_ALONE = ("config", "source")
"""Its modules that fake tensors use, which run without the rest."""
_DISABLED = "__dynamo_disable"
"""Where torch remembers that it has told the compiler to leave a function alone."""


@contextmanager
def without_compiler() -> Iterator[None]:
    """Use optimizers and fake tensors in this block without loading torch's compiler.

    Code that uses more of the compiler loads it, outside fake mode.
    """
    late = sys.modules.get(_COMPILER) or _late_compiler()
    if not isinstance(late, _LateCompiler):
        yield
        return
    left_alone: list[Any] = []

    def disable(function: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
        left_alone.append(function)
        return function

    late.answers = {"disable": disable, "graph_break": lambda *_, **__: None}
    try:
        yield
    finally:
        late.answers = {}
        for function in left_alone:  # a compiler that is loaded later must be told, too
            vars(function).pop(_DISABLED, None)


class _LateCompiler(ModuleType):
    """The compiler's package, whose own code runs on the first use of a name."""

    answers: dict[str, Any]
    """What it answers to without its code."""

    def __getattr__(self, name: str) -> Any:
        answers = self.__dict__.get("answers", {})
        if name in answers:
            return answers[name]
        if name.startswith("__"):
            raise AttributeError(name)
        self.run()
        return getattr(self, name)

    def run(self) -> None:
        """Run the package's own code, as its import would have done."""
        self.__class__ = ModuleType  # type: ignore[assignment]
        sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _Modules)]
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        # Modules create tensors, which must not be fake: they outlive the mode.
        with disabled_dispatch_modes(), loading():
            self.__spec__.loader.exec_module(self)


class _Modules(MetaPathFinder):
    """Runs the compiler's own code before the import of any other of its modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module if the package's code has loaded it."""
        late = sys.modules.get(_COMPILER)
        if not fullname.startswith(f"{_COMPILER}.") or not isinstance(late, _LateCompiler):
            return None
        late.run()
        found = sys.modules.get(fullname)
        if found is None:
            return None
        # The import system takes the `__spec__` of a module that has come meanwhile.
        spec = found.__spec__ = ModuleSpec(fullname, _Loaded(found))
        return spec


class _Loaded(Loader):
    """Returns a module that is loaded already."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        del spec
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own `__spec__` back."""
        module.__spec__ = self._spec


def _late_compiler() -> ModuleType:
    """Return the compiler's package without its own code, if fake tensors can do without that."""
    spec = importlib.util.find_spec(_COMPILER)
    assert spec is not None
    late = importlib.util.module_from_spec(spec)
    sys.modules[_COMPILER] = torch._dynamo = late
    try:
        with loading():
            for name in _USED_ALONE:
                importlib.import_module(f"{_COMPILER}.{name}")
    except (ImportError, AttributeError):  # another release of torch
        for name in [each for each in sys.modules if each.partition(f"{_COMPILER}.")[1]]:
            del sys.modules[name]
        del sys.modules[_COMPILER], torch._dynamo
        return importlib.import_module(_COMPILER)
    late.__class__ = _LateCompiler
    sys.meta_path.insert(0, _Modules())
    return late
