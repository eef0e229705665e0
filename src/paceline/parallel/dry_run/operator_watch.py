"""Observe torch operators as they run, called by the user's code or by torch itself."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from paceline.comm.torch_internals import TorchDispatchMode, is_traceable_wrapper_subclass_type


class Watcher(Protocol):
    """An observer of every operator."""

    def before(self) -> None:
        """Called before an operator runs."""

    def after(self, function: Any, args: Sequence[Any], result: Any) -> None:
        """Called after an operator has run."""


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that notifies watchers of the operators that run in this thread.

    One mode serves all watchers, because each further mode would slow every operator down.
    """

    def __init__(self, *watchers: Watcher) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watchers = watchers

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator and notify the watchers."""
        if function.namespace == "prim":  # frequent, and only reads a tensor's device
            return function(*args, **(kwargs or {}))
        if any(_is_wrapper(each) for each in types):
            return NotImplemented  # unwraps into the operators that really run
        for watcher in self._watchers:
            watcher.before()
        result = function(*args, **(kwargs or {}))
        for watcher in self._watchers:
            watcher.after(function, args, result)
        return result


@cache
def _is_wrapper(kind: type) -> bool:
    """Whether tensors of this class wrap other tensors, on which the operators run instead."""
    return is_traceable_wrapper_subclass_type(kind)
