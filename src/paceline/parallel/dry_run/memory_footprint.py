"""Memory in use during a step: every storage that torch allocates, until it is freed."""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from paceline.comm.torch_internals import (
    current_backward,
    operator_name,
    operator_schema,
    storage_id,
)
from paceline.parallel.dry_run.fake_workers import replaced

PARAMETERS, GRADIENTS, COMMUNICATION, INPUTS = "parameters", "gradients", "communication", "inputs"
"""Purposes of memory. Unclaimed memory holds activations."""
_ACTIVATIONS = "activations"

_EXCHANGED = {"_allgather_base_": 0, "_reduce_scatter_base_": 1}
"""Collectives of shards, and the index of the argument that is gathered or laid out."""


class Footprint:
    """Counts bytes in use by purpose.

    Saved activations are counted each time a backward begins, because forward has then freed
    everything else; the same holds for a recomputed block. The peak is over every moment.
    """

    def __init__(self, claim: "Callable[[Footprint], None]") -> None:
        self.peak = 0
        self.most: Counter[str] = Counter()
        """The maximum number of bytes for each purpose."""
        self._claim = claim
        self._now: Counter[str] = Counter()
        self._total = 0
        self._pieces: dict[int, tuple[str, int, Any]] = {}
        self._in_backward = False
        self._backward: int | None = None

    def claim(self, purpose: str, tensors: Iterable[torch.Tensor]) -> None:
        """Attribute the memory of tensors to a purpose."""
        for tensor in tensors:
            self._take(tensor.untyped_storage(), purpose)

    def look(self) -> None:
        """Record the memory in use now."""
        with torch.no_grad():
            self._claim(self)
        self.most[_ACTIVATIONS] = max(self.most[_ACTIVATIONS], self._now[_ACTIVATIONS])

    @property
    def activations(self) -> int:
        """The maximum number of bytes saved for backward."""
        return self.most[_ACTIVATIONS]

    @contextmanager
    def following_sizes(self) -> Iterator[None]:
        """Track storages that change their size, as those of shards do, inside the block."""
        resize = torch.UntypedStorage.resize_

        def resize_and_count(storage: torch.UntypedStorage, size: int) -> Any:
            resized = resize(storage, size)
            known = self._pieces.get(storage_id(storage))
            if known is not None:
                self._let_go(storage_id(storage))
                self._keep(storage_id(storage), known[0], size, known[2])
            return resized

        with replaced(torch.UntypedStorage, "resize_", resize_and_count):
            yield

    def before(self) -> None:
        """Record the memory in use if a backward begins."""
        backward = current_backward()
        # While a block is recomputed, backward enables gradients, and disables them afterwards.
        computes = backward is not None and not torch.is_grad_enabled()
        if computes and not self._in_backward:
            more = self._now[_ACTIVATIONS] > self.most[_ACTIVATIONS]
            if more or backward != self._backward:
                self.look()
            self._backward = backward
        self._in_backward = computes

    def after(self, function: Any, args: Sequence[Any], result: Any) -> None:
        """Count the memory of an operator's result."""
        exchanged = (
            _EXCHANGED.get(operator_name(function)) if function.namespace == "c10d" else None
        )
        if exchanged is not None:
            self.claim(COMMUNICATION, [args[exchanged]])
        elif not _writes_its_result(function):
            for each in result if isinstance(result, tuple | list) else (result,):
                if isinstance(each, torch.Tensor):
                    self._take(each.untyped_storage())

    def _take(self, storage: torch.UntypedStorage, purpose: str | None = None) -> None:
        key = storage_id(storage)
        known = self._pieces.get(key)
        if known is not None:
            if purpose is None or known[0] == purpose:
                return
            self._let_go(key)
        freed = weakref.ref(storage, lambda _: self._let_go(key))
        self._keep(key, purpose or _ACTIVATIONS, storage.nbytes(), freed)

    def _keep(self, key: int, purpose: str, size: int, freed: Any) -> None:
        self._pieces[key] = (purpose, size, freed)
        self._now[purpose] += size
        self._total += size
        self.peak = max(self.peak, self._total)
        if purpose != _ACTIVATIONS:
            self.most[purpose] = max(self.most[purpose], self._now[purpose])

    def _let_go(self, key: int) -> None:
        known = self._pieces.pop(key, None)
        if known is not None:
            self._now[known[0]] -= known[1]
            self._total -= known[1]


@cache
def _writes_its_result(function: Any) -> bool:
    """Whether an operator returns memory that it was given, such as an in-place addition."""
    return any(
        each.alias_info and each.alias_info.is_write for each in operator_schema(function).returns
    )
