"""Slicing models on the ranks of a test's run, and how far they are from whole ones."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.parallel.forward_trace import trace
from paceline.parallel.slices.sliced_model import Cuts, Sliced
from paceline.parallel.slices.slicing import find_slicing
from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Layout, Run
from paceline.train.elastic.joined_groups import joined
from parallel.sliced_models import text

Loss = Callable[[Any, torch.Tensor], torch.Tensor]


@contextmanager
def workers() -> Iterator[DeviceMesh]:
    """The mesh of all ranks of the test's run."""
    folder = run_folder()
    assert folder is not None
    here = placement()
    with joined(Run.open(folder), here, torch.device("cpu"), None):
        yield init_device_mesh("cpu", (here.workers,), mesh_dim_names=("tensor",))


def built(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def sliced(model: nn.Module, mesh: DeviceMesh, *, sequence: bool = False, **told: Any) -> Sliced:
    model.eval()
    layout = Layout(tensor=mesh.size(), **told)
    slicing = find_slicing(model, trace(model, lambda: model(text())), layout)
    model.train()
    return Sliced(model, Cuts(model, slicing, mesh), sequence=sequence)


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    assert type(found) in (torch.Tensor, nn.Parameter), type(found)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    found, expected = found.detach().double(), expected.detach().double()
    size = max(1.0, expected.abs().max().item())
    return (found - expected).abs().max().item() / size


def compared(make: Callable[[], nn.Module], loss: Loss, mesh: DeviceMesh, **how: Any) -> float:
    """How far loss, outputs and gradients are from those of the whole model, at the most."""
    inputs, target = text(), text(2)
    whole, model = built(make), built(make)
    expected = loss(whole(inputs), target)
    torch.autograd.backward(expected)
    part = sliced(model, mesh, **how)
    with part.computing():
        found = loss(model(inputs), target)
        torch.autograd.backward(found)
    far = difference(found, expected)
    mine = dict(model.named_parameters())
    for name, parameter in whole.named_parameters():
        gradient = mine[name].grad
        assert parameter.grad is not None
        assert gradient is not None, name
        far = max(far, difference(gradient, part.cuts.own(name, parameter.grad)))
        assert torch.equal(part.gather(name, mine[name]), parameter)
        assert part.is_sliced(name) == (mine[name].shape != parameter.shape)
    whole.eval()
    model.eval()
    with torch.no_grad(), part.computing():
        output = part.whole_output(model(inputs))
    return max(far, difference(output, whole(inputs)))


_COLLECTIVES = {"allreduce", "allgatherintotensor", "reducescattertensor", "alltoallsingle"}


class Collectives(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts collectives, and unlike PyTorch's own mode leaves the inputs of modules alone."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.__name__.partition(".")[0].replace("_", "")
        if function.namespace in ("c10d", "_c10d_functional") and name in _COLLECTIVES:
            self.seen[name] += 1
        return function(*args, **(kwargs or {}))
