"""How the contents of a storage came about, so that they can be computed again, to the bit."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from paceline.comm.torch_internals import operator_name, operator_schema, tree_leaves, tree_map

_FULL_WRITES = frozenset(
    {"copy_", "zero_", "fill_", "uniform_", "normal_", "random_", "exponential_", "bernoulli_"}
    | {"log_normal_", "cauchy_", "geometric_", "eye"}
)
"""Operators that write every element of their first argument or `out` and do not read it."""

_UNINITIALIZED = frozenset({"empty", "empty_strided", "empty_like", "new_empty"})
"""Operators whose results have no contents to compute again."""


@dataclass(frozen=True)
class Version:
    """The contents of a storage after a call, which may change those of an earlier version."""

    number: int
    """The storage's number; each storage has its own."""
    size_bytes: int
    device: torch.device
    call: "Call | None" = None
    """None: not initialized."""
    result: int | None = None
    """The index of the call's result with this storage; None: the call writes it in place."""
    before: "Version | None" = None
    """The contents that the call changes; None: it does not read them."""

    def contents(self) -> torch.UntypedStorage:
        """Return a new storage with these contents."""
        storage = torch.UntypedStorage(self.size_bytes, device=self.device)  # type: ignore[no-untyped-call]
        self.write(storage)
        return storage

    def write(self, storage: torch.UntypedStorage) -> None:
        """Compute these contents in a storage of their size."""
        for version in reversed([*self._history()]):
            if version.call is None:
                continue
            results = version.call.run(version.number, storage)
            if version.result is not None:
                storage.copy_(tensors_in(results)[version.result].untyped_storage())

    def after(self, call: "Call", *, reads: bool) -> "Version":
        """Return the contents after a call that writes them, and maybe reads these."""
        before = self if reads else None
        return Version(self.number, self.size_bytes, self.device, call, before=before)

    def _history(self) -> "Iterator[Version]":
        version: Version | None = self
        while version is not None:
            yield version
            version = version.before


@dataclass(frozen=True)
class Placed:
    """A tensor on a storage whose contents are known by their version."""

    version: Version
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor, version: Version) -> "Placed":
        """Return the place of a tensor on the storage of this version."""
        return cls(
            version, tensor.size(), tensor.stride(), int(tensor.storage_offset()), tensor.dtype
        )

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """Return the tensor at this place on a storage."""
        empty = torch.empty(0, dtype=self.dtype, device=storage.device)
        return empty.set_(storage, self.offset, self.size, self.stride)


@dataclass(frozen=True)
class Call:
    """A call of an operator, with the random numbers that it drew."""

    operator: Any
    arguments: Any
    """Its arguments: tensors on known storages as `Placed`, others as they were."""
    generator: torch.Generator | None
    state: torch.Tensor | None
    """The generator's state before the call; None if the call draws no random numbers."""

    def run(self, number: int, storage: torch.UntypedStorage) -> Any:
        """Call the operator again, with storage `number` at hand and the others computed anew."""
        found = {number: storage}

        def placed(leaf: Any) -> Any:
            if not isinstance(leaf, Placed):
                return leaf
            if leaf.version.number not in found:
                found[leaf.version.number] = leaf.version.contents()
            return leaf.on(found[leaf.version.number])

        args, kwargs = tree_map(placed, self.arguments)
        if self.generator is None or self.state is None:
            return self.operator(*args, **kwargs)
        now = self.generator.get_state()
        self.generator.set_state(self.state)
        try:
            return self.operator(*args, **kwargs)
        finally:
            self.generator.set_state(now)


def generator_of(operator: Any, kwargs: dict[str, Any]) -> torch.Generator | None:
    """Return the generator that a call on the CPU draws from; None if it draws none."""
    if torch.Tag.nondeterministic_seeded not in operator.tags:
        return None
    return kwargs.get("generator") or torch.default_generator


def written(operator: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the arguments that a call writes in place."""
    names = _written_names(operator)
    if not names:
        return []
    arguments = operator_schema(operator).arguments
    given = dict(zip((each.name for each in arguments), args, strict=False)) | kwargs
    return tensors_in([given.get(name) for name in names])


def overwrites(operator: Any, tensor: torch.Tensor, storage_bytes: int) -> bool:
    """Whether a call that writes this tensor leaves nothing of its storage's old contents."""
    return tensor.nbytes == storage_bytes and operator_name(operator) in _FULL_WRITES


def needs_contents(operator: Any) -> bool:
    """Whether an operator reads or writes contents, and does not only take a tensor's form."""
    return operator_name(operator) not in _UNINITIALIZED


@cache
def is_view(operator: Any) -> bool:
    """Whether an operator returns other views of its arguments and touches no contents."""
    returns = operator_schema(operator).returns
    return bool(returns) and all(
        each.alias_info is not None and not each.alias_info.is_write for each in returns
    )


@cache
def _written_names(operator: Any) -> tuple[str, ...]:
    return tuple(
        each.name
        for each in operator_schema(operator).arguments
        if each.alias_info is not None and each.alias_info.is_write
    )


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Return the tensors in a nested structure."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
