"""The argument of a training's `optimizer`: parameters, with their names for parameter groups."""

from collections.abc import Iterable, Iterator

from torch import nn


class Parameters(Iterator[nn.Parameter]):
    """An iterator over the parameters that this worker updates."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]]) -> None:
        self._named = tuple(named)
        self._left = iter(self._named)

    def __next__(self) -> nn.Parameter:
        return next(self._left)[1]

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Iterate over `(name, parameter)`, with the names of your model in every layout."""
        return iter(self._named)
