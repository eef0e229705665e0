"""Models with torch's higher-order operators, such as `scan`: what they call, and why it fails.

These operators take functions, and torch compiles them on use. Some cannot run on fake tensors, or
under the modes that count operations; which of them differs between torch's releases.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paceline.comm.torch_internals import HigherOrderOperator, TorchDispatchMode
from paceline.parallel.dry_run.fake_workers import what_is_lacking
from paceline.specs import PacelineError


class HigherOrderCalls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the names of the higher-order operators that are called inside the mode.

    In a dispatch mode, torch runs their functions without compiling them.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call an operator; note its name if it is of higher order."""
        if isinstance(function, HigherOrderOperator):
            self.names.add(function.name())  # type: ignore[no-untyped-call]
        return function(*args, **(kwargs or {}))

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise a clear error if something fails in a model that calls such operators."""
        try:
            yield
        except PacelineError:
            raise
        except Exception as error:
            if not self.names or what_is_lacking(error) is not None:
                raise
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise PacelineError(
                f"the model calls torch's {', '.join(sorted(self.names))}, whose operations cannot"
                f" be counted: {reason}",
                fix="measure how the training scales instead: paceline study TRAIN; or plan a model"
                " with ordinary operators in that place",
            ) from error
