"""Watching the operators of torch as they run, whoever calls them: the user or torch itself."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from paceline.comm.torch_internals import TorchDispatchMode, is_traceable_wrapper_subclass_type


class Watcher(Protocol):
    """Is told of every operator."""

    def before(self) -> None:
        """An operator is about to run."""

    def after(self, function: Any, args: Sequence[Any], result: Any) -> None:
        """An operator has run."""


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, tells watchers of the operators that run in this thread.

    One for all watchers: every further one would slow each operator down.
    """

    def __init__(self, *watchers: Watcher) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watchers = watchers

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Let an operator run, and tell of it."""
        if function.namespace == "prim":  # asks only for a tensor's device, and often
            return function(*args, **(kwargs or {}))
        if any(_is_wrapper(each) for each in types):
            return NotImplemented  # it comes apart into what is really run, which is seen then
        for watcher in self._watchers:
            watcher.before()
        result = function(*args, **(kwargs or {}))
        for watcher in self._watchers:
            watcher.after(function, args, result)
        return result


@cache
def _is_wrapper(kind: type) -> bool:
    """Whether tensors of this class hold other tensors, on which operators are run instead."""
    return is_traceable_wrapper_subclass_type(kind)
