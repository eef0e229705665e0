"""Single samples in a plain model, before training: what they leave unused, what they change.

All workers try the same samples on a copy of the model that shares its trainable parameters, and on
a copy of the loss. So the trial changes nothing and needs little memory.
"""

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import CellType, FunctionType
from typing import Any

import torch
from torch import nn

from paceline.comm.torch_internals import BatchNormLayer, tree_leaves
from paceline.data.loader import Batch, collated
from paceline.parallel.step.model_calls import call, checked_loss
from paceline.parallel.step.taken_gradients import taken_gradients
from paceline.user.training import Training


@dataclass(frozen=True)
class SampleTrial:
    """What a few samples showed about a model."""

    branches: frozenset[str] = frozenset()
    """Parameters that a batch may leave unused, such as those of an expert."""
    steady: frozenset[str] = frozenset()
    """Buffers that each forward changes alike, whatever its samples, such as a counter of steps."""
    differentiates: bool = False
    """Whether the loss differentiates the model itself, as a gradient penalty does."""


@dataclass(frozen=True)
class _Seen:
    """The record of one forward and backward."""

    used: set[str]
    """Parameters that got a gradient."""
    shapes: dict[str, list[torch.Size]]
    """Shapes of the tensors that each module was called with."""
    buffers: dict[str, torch.Tensor]
    differentiates: bool
    """Whether a gradient passed through the model before backward."""


def try_samples(training: Training, model: nn.Module, device: torch.device) -> SampleTrial:
    """Try a few samples.

    Each worker of a run gets the same result without communication, also one that joins later: the
    samples and the initial weights are the same.
    """
    pattern = training.branches
    branches = {
        name
        for name, each in model.named_parameters()
        if each.requires_grad and pattern is not None and fnmatchcase(name, pattern)
    }
    # Compiling for so few samples would take longer than the trial, and again for a whole batch.
    compiles = "torch._dynamo" in sys.modules
    eager = torch.compiler.set_stance("force_eager") if compiles else nullcontext()
    with torch.random.fork_rng(devices=[]), eager:
        seen = _tried(training, model, device)
    if seen is None:
        return SampleTrial(frozenset(branches))
    after = [each.buffers for each in seen]
    steady = {
        name
        for name, before in model.named_buffers()
        if not torch.equal(after[0][name], before)
        and all(torch.equal(after[0][name], each[name]) for each in after)
    }
    return SampleTrial(
        frozenset(branches | _branches(model, *seen)),
        frozenset(steady),
        any(each.differentiates for each in seen),
    )


def _tried(training: Training, model: nn.Module, device: torch.device) -> list[_Seen] | None:
    """Try the first sample, the second, and both; None if the model does not accept so few."""
    trained = [each for each in model.parameters() if each.requires_grad]
    frozen = [each for each in model.parameters() if not each.requires_grad]
    # Forward may update frozen weights, such as a moving average of the trained ones. A larger
    # number of them is a pretrained model, which a copy might not fit beside.
    large = sum(each.nbytes for each in frozen) > sum(each.nbytes for each in trained)
    shared: dict[int, Any] = {id(each): each for each in (*trained, *(frozen if large else ()))}
    try:
        samples = training.first(2)
        few = [
            collated(samples[part], device, training.form)
            for part in (slice(1), slice(1, 2), slice(2))
        ]
        return [_try(training, copy.deepcopy(model, dict(shared)), each) for each in few]
    except Exception:  # whatever is wrong, the first step shows it
        return None


def _try(training: Training, model: nn.Module, batch: Batch) -> _Seen:
    for module in model.modules():
        if isinstance(module, BatchNormLayer):
            module.eval()  # it refuses a single sample
    used: set[str] = set()
    shapes: dict[str, list[torch.Size]] = {}
    with (
        taken_gradients(model, lambda name, gradient: used.add(name)),
        _noting_shapes(model, shapes),
        _counting_backwards(model) as passed,
    ):
        losses = list(_losses(training, model, batch))
        differentiates = bool(passed)
        torch.autograd.backward(losses)
    return _Seen(used, shapes, dict(model.named_buffers()), differentiates)


def _losses(training: Training, model: nn.Module, batch: Batch) -> Iterator[torch.Tensor]:
    if training.phases is None:
        loss = _copied(training.loss)
        yield checked_loss(loss(call(model, batch.inputs), batch.target))
    else:
        for phase in training.phases.values():
            yield checked_loss(_copied(phase.loss)(model, batch.inputs, batch.target))


def _copied(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a function with the values of its closure, such as a count of its calls."""
    if not isinstance(function, FunctionType) or not function.__closure__:
        return copy.deepcopy(function)
    cells = tuple(CellType(copy.deepcopy(cell.cell_contents)) for cell in function.__closure__)
    copied = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


@contextmanager
def _noting_shapes(model: nn.Module, shapes: dict[str, list[torch.Size]]) -> Iterator[None]:
    def noting(name: str) -> Any:
        def note(module: nn.Module, args: Any, kwargs: Any) -> None:
            del module
            leaves = tree_leaves((args, kwargs))
            found = [each.shape for each in leaves if isinstance(each, torch.Tensor)]
            shapes.setdefault(name, []).extend(found)

        return note

    with ExitStack() as stack:
        for name, module in model.named_modules():
            if next(module.parameters(), None) is not None:
                hook = module.register_forward_pre_hook(noting(name), with_kwargs=True)
                stack.callback(hook.remove)
        yield


@contextmanager
def _counting_backwards(model: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Collect the gradients that pass through the outputs of modules."""
    passed: list[torch.Tensor] = []

    def note(module: nn.Module, args: Any, output: Any) -> None:
        del module, args
        for each in tree_leaves(output):
            if isinstance(each, torch.Tensor) and each.requires_grad:
                each.register_hook(passed.append)  # type: ignore[no-untyped-call]

    with ExitStack() as stack:
        for module in model.modules():
            stack.callback(module.register_forward_hook(note).remove)
        yield passed


def _branches(model: nn.Module, first: _Seen, second: _Seen, both: _Seen) -> set[str]:
    """Return the parameters that a batch may leave unused.

    They got no gradient from some of the samples; or they are in a module that gets as many rows as
    the samples send to it: two samples of the same shape gave it different shapes.
    """
    found = {
        name
        for name, each in model.named_parameters()
        if each.requires_grad and not all(name in seen.used for seen in (first, second, both))
    }
    if first.shapes.get("") == second.shapes.get(""):
        for name, shapes in first.shapes.items():
            if second.shapes.get(name) != shapes:
                found |= {
                    f"{name}.{part}" for part, _ in model.get_submodule(name).named_parameters()
                }
    return found
