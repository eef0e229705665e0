"""Weights that have memory only while an operator uses them, within a budget.

The user's model is built as on one process: every random number is drawn, in the same order. A
storage past the budget gives its memory back and keeps the calls that led to its contents. An
operator that needs them computes them again, with the same random numbers. So a trial of the whole
model runs on a device that cannot hold it, and each worker's shards, slices or stages get the very
weights that one process would have.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from paceline.comm.torch_internals import (
    HigherOrderOperator,
    TorchDispatchMode,
    disabled_dispatch_modes,
    is_traceable_wrapper_subclass_type,
    operator_name,
    tree_map,
    tree_map_only,
)
from paceline.parallel.deferred.recipes import (
    Call,
    Placed,
    Version,
    generator_of,
    is_view,
    needs_contents,
    overwrites,
    tensors_in,
    written,
)
from paceline.parallel.deferred.storages import Storages

_LEAST_BYTES = 64 * 2**10
"""Smaller storages always keep their memory."""
_FORM_ONLY = frozenset({"_to_copy", "clone", "cat"})
"""Operators that are recorded without computing their result, which nothing may need."""
_REPLACES_MEMORY = frozenset({"set_", "resize_"})
_DIRECT_READS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        *("numpy", "__array__", "tolist", "data_ptr", "__dlpack__"),
        *("__deepcopy__", "__reduce_ex__", "share_memory_"),
    )
)
"""Methods that read or copy memory without an operator."""


class Deferral(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which storages past a budget have no memory between operators.

    `budget_bytes` returns how much memory of a device they may keep. Leave the mode only after
    `settle`: without memory, a tensor must not be used outside of it.
    """

    supports_higher_order_operators = True

    def __init__(self, budget_bytes: Callable[[torch.device], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._records = False
        self._numbers = count()
        self._storages = Storages(budget_bytes)
        self._direct = _DirectReads(self)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record inside the block how new storages get their contents."""
        self._records = True
        try:
            with self._direct:
                yield
        finally:
            self._records = False

    @property
    def is_needed(self) -> bool:
        """Whether the recorded storages exceed the budget of a device."""
        return self._storages.exceed_budget

    def release(self) -> None:
        """Give back the memory of all storages and keep none from now on."""
        self._storages.free_all()

    def settle(self) -> None:
        """Give every storage that is still in use its memory and contents, for good."""
        with disabled_dispatch_modes():  # this one is active: what is computed is no new call
            self._storages.keep_all()

    def keep(self, tensor: torch.Tensor) -> None:
        """Give a tensor its memory and contents, for good."""
        with disabled_dispatch_modes():
            self._storages.keep(tensor)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator with the contents of the storages that it uses."""
        kwargs = kwargs or {}
        if any(is_traceable_wrapper_subclass_type(each) for each in types):
            return NotImplemented  # unwraps into the operators that really run
        if isinstance(function, HigherOrderOperator):
            return self._run(function, args, kwargs, [])
        if function.namespace == "prim" or not (self._records or needs_contents(function)):
            return function(*args, **kwargs)
        if is_view(function):
            return self._viewed(function, args, kwargs)
        writes = written(function, args, kwargs)
        if not self._records:
            result = self._run(function, args, kwargs, [])
            for tensor in writes:
                self._storages.keep(tensor)
            return result
        return self._recorded(function, args, kwargs, writes)

    def _recorded(self, function: Any, args: Any, kwargs: Any, writes: list[torch.Tensor]) -> Any:
        given = tensors_in((args, kwargs))
        generator = generator_of(function, kwargs)
        name = operator_name(function)
        if name in _REPLACES_MEMORY or (generator and any(not _on_host(each) for each in given)):
            for tensor in given:
                self._storages.keep(tensor)
        known = self._storages.of(given)
        call = Call(
            function,
            tree_map(self._remembered, (args, kwargs)),
            generator,
            generator.get_state() if generator else None,
        )
        unread = [each for each in writes if self._is_overwritten(function, each)]
        computed, result = True, None
        if known and name in _FORM_ONLY:
            result = _form(function, args, kwargs, given[0].device)
            computed = result.untyped_storage().nbytes() < _LEAST_BYTES  # it keeps its memory
        if computed:
            result = self._run(function, args, kwargs, unread)
        for each in self._storages.of(writes):
            reads = each not in self._storages.of(unread)
            each.version = each.version.after(call, reads=reads)
        for number, tensor in enumerate(tensors_in(result)):
            if known or _on_host(tensor):
                self._note_new(tensor, call, number, computed=computed)
        for each in (*known, *self._storages.of(tensors_in(result))):
            self._storages.free_if_over(each)
        return result

    def _viewed(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Return a view; torch wants the storage to have its size, but reads nothing of it."""
        known = self._storages.of(tensors_in((args, kwargs)))
        blank = [each for each in known if not each.has_memory]
        for each in blank:
            self._storages.give_memory(each, contents=False)
        try:
            return function(*args, **kwargs)
        finally:
            for each in blank:
                self._storages.free(each)

    def _run(self, function: Any, args: Any, kwargs: Any, unread: list[torch.Tensor]) -> Any:
        """Run an operator; `unread` are arguments whose contents it does not need."""
        needed, blank = self._storages.of(tensors_in((args, kwargs))), self._storages.of(unread)
        for known in needed:
            self._storages.give_memory(known, contents=known not in blank)
        try:
            return function(*args, **kwargs)
        finally:
            for known in needed:
                self._storages.free_if_over(known)

    def _is_overwritten(self, function: Any, tensor: torch.Tensor) -> bool:
        known = self._storages.find(tensor)
        return known is not None and overwrites(function, tensor, known.version.size_bytes)

    def _remembered(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        known = self._storages.find(leaf)
        if known is not None:
            return Placed.of(leaf, known.version)
        # A large tensor that was not computed here is the user's, such as one read from a file.
        return leaf.detach().clone() if leaf.nbytes < _LEAST_BYTES else leaf.detach()

    def _note_new(self, tensor: torch.Tensor, call: Call, result: int, *, computed: bool) -> None:
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        if storage.nbytes() < _LEAST_BYTES or self._storages.find(tensor) is not None:
            return
        form = Version(next(self._numbers), storage.nbytes(), tensor.device)
        made = replace(form, call=call, result=result) if needs_contents(call.operator) else form
        known = self._storages.add(storage, made)
        if not computed:
            self._storages.free(known)


class _DirectReads(TorchFunctionMode):
    """Keeps the memory of tensors that are read or copied without an operator."""

    def __init__(self, deferral: Deferral) -> None:
        super().__init__()
        self._deferral = weakref.ref(deferral)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a torch function; give its tensors memory before a direct read."""
        deferral = self._deferral()
        if function in _DIRECT_READS and deferral is not None:
            for tensor in tensors_in(args):
                deferral.keep(tensor)
        return function(*args, **(kwargs or {}))


def _form(function: Any, args: Any, kwargs: Any, device: torch.device) -> torch.Tensor:
    """Return a result of the form that a function gives it, without computing it."""

    def on_meta(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(
            tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta"
        )

    moves = "device" in kwargs and kwargs["device"] is not None
    target = torch.device(kwargs["device"]) if moves else device
    args, kwargs = tree_map_only(torch.Tensor, on_meta, (args, kwargs))
    form = function(*args, **(kwargs | ({"device": "meta"} if moves else {})))
    return torch.empty_strided(form.size(), form.stride(), dtype=form.dtype, device=target)


def _on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"
