"""One traced forward of a model: the compute, memory traffic and saved bytes of each region."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from paceline.comm.torch_internals import (
    HigherOrderOperator,
    TorchDispatchMode,
    own_parameters,
    storage_id,
    tree_leaves,
)
from paceline.profile.matmuls import Product, is_uncounted, products_of
from paceline.profile.regions import Regions

Role = Literal["columns", "rows", "vocabulary"]
"""How tensor parallelism slices a layer: a linear layer along its outputs or its inputs, an
embedding along its vocabulary."""
Sliced = Literal["columns", "inner", "repeats", "whole"]


@dataclass
class Seen:
    """Costs of one region. Bytes that tensor parallelism divides are counted separately."""

    products: list[tuple[Product, Sliced]] = field(default_factory=list)
    operators: int = 0
    moved: Counter[bool] = field(default_factory=Counter)
    """Bytes read and written by all other operators; the key: whether tensor parallelism divides
    them."""
    saved: Counter[bool] = field(default_factory=Counter)
    """Bytes saved for backward."""
    results: Counter[bool] = field(default_factory=Counter)
    """Bytes of the products' results."""
    output: int = 0
    """Bytes of the region's output."""
    reductions: int = 0
    """Layers sliced along their inputs or vocabulary, which need an all-reduce."""
    parameters: Counter[bool] = field(default_factory=Counter)
    """Parameters of modules first called here; the key: whether tensor parallelism divides them."""
    uncounted: set[str] = field(default_factory=set)
    """Names of operators whose FLOPs are not counted."""


def watched(
    model: nn.Module,
    roles: Mapping[str, Role],
    forward: Callable[[], Any],
    loss: Callable[[Any], torch.Tensor],
) -> list[Seen]:
    """Trace `loss(forward())`; return the costs by region: before, every block, after."""
    regions = Regions(model)
    watch = _Watch(model, regions)
    with ExitStack() as stack:
        stack.enter_context(regions.followed(left=watch.hand_on))
        stack.enter_context(watch.following(roles))
        stack.enter_context(watch.saving())
        stack.enter_context(watch)
        output = forward()
        regions.now = regions.last
        watch.hand_on(regions.last, output)
        loss(output)
    return watch.seen


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    supports_higher_order_operators = True

    def __init__(self, model: nn.Module, regions: Regions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = [Seen() for _ in range(regions.last + 1)]
        self._model = model
        self._regions = regions
        self._divided = False
        """True between a layer sliced along its outputs and the next one sliced along its
        inputs."""
        self._role: Role | None = None
        self._found: set[int] = set()
        # Holding a storage prevents the reuse of its ID.
        self._kept = {
            storage_id(each.untyped_storage()): each.untyped_storage()
            for each in [*model.parameters(), *model.buffers()]
        }

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator and count it."""
        result = function(*args, **(kwargs or {}))
        if isinstance(function, HigherOrderOperator):
            seen = self.seen[self._regions.now]
            seen.uncounted.add(function.name())  # type: ignore[no-untyped-call]
            seen.moved[self._divided] += _bytes((args, kwargs or {})) + _bytes(result)
        elif function.namespace != "prim" and not function.is_view:
            self._count(function, args, kwargs or {}, result)
        return result

    def _count(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        seen = self.seen[self._regions.now]
        found = products_of(function, args, result)
        seen.operators += 1
        if is_uncounted(function):
            seen.uncounted.add(function.name().partition(".")[0])
        if not found:
            seen.moved[self._divided] += _bytes((args, kwargs)) + _bytes(result)
            return
        sliced: Sliced = "whole"
        if self._role in ("columns", "rows"):
            sliced = "columns" if self._role == "columns" else "inner"
        elif self._divided:
            sliced = "repeats"
        seen.products += [(each, sliced) for each in found]
        seen.results[sliced in ("columns", "repeats")] += _bytes(result)

    def hand_on(self, number: int, outputs: Any) -> None:
        """Record the output of a region that has ended."""
        self.seen[number].output = sum(
            each.nbytes
            for each in tree_leaves(outputs)
            if isinstance(each, torch.Tensor) and each.is_floating_point()
        )

    def saving(self) -> Any:
        """Return a context that counts tensors saved for backward."""
        return torch.autograd.graph.saved_tensors_hooks(self._save, lambda kept: kept)

    def _save(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage_id(storage) not in self._kept:
            self._kept[storage_id(storage)] = storage
            self.seen[self._regions.now].saved[self._divided] += storage.nbytes()
        return tensor

    @contextmanager
    def following(self, roles: Mapping[str, Role]) -> Iterator[None]:
        """Return a context in which hooks report the modules that are called."""
        with ExitStack() as stack:
            for name, module in self._model.named_modules():
                if own_parameters(module):
                    enter = self._enter(roles.get(name))
                    stack.callback(module.register_forward_pre_hook(enter).remove)
                if name in roles:
                    stack.callback(module.register_forward_hook(self._leave).remove)
            yield

    def _enter(self, role: Role | None) -> Callable[[nn.Module, Any], None]:
        def enter(module: nn.Module, args: Any) -> None:
            del args
            self._role = role
            parameters = self.seen[self._regions.now].parameters
            for name, each in own_parameters(module).items():
                if each is not None and id(each) not in self._found:
                    self._found.add(id(each))
                    divided = role is not None and not (role == "rows" and name == "bias")
                    parameters[divided] += each.numel()

        return enter

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        del module, args, output
        self._divided = self._role == "columns"
        if self._role != "columns":
            self.seen[self._regions.now].reductions += 1
        self._role = None


def _bytes(values: Any) -> int:
    return sum(each.nbytes for each in tree_leaves(values) if isinstance(each, torch.Tensor))
