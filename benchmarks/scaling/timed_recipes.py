"""The small recipes, and what each of their layers costs on one core."""

import runpy
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from benchmarks.common.output import progress
from benchmarks.common.processes import ROOT
from paceline import Training

TIMINGS = 15

Layer = tuple[float, float, int]
"""Forward and backward seconds of a sample, and bytes of weights."""


@dataclass(frozen=True)
class Recipe:
    """A training to scale, and how its model divides into layers that follow each other."""

    script: Path
    layers: Callable[[nn.Module], Sequence[nn.Module]]
    embeddings: tuple[str, ...] = ()
    """Beginnings of the names of weights before the layers; others come after them."""
    words: tuple[str, ...] = ("--small",)
    study: tuple[str, ...] = ()

    def training(self) -> Training:
        """Return the training, as the script makes it."""
        given, sys.argv = sys.argv, [str(self.script), *self.words]
        sys.path.insert(0, str(self.script.parent))
        try:
            training: Training = runpy.run_path(str(self.script))["training"]()
            return training
        finally:
            sys.path.remove(str(self.script.parent))
            sys.argv = given


def _blocks(model: nn.Module) -> Sequence[nn.Module]:
    blocks = model.blocks
    assert isinstance(blocks, nn.Sequential)
    return list(blocks)


_RECIPES = ROOT / "examples" / "recipes"
RECIPES = {
    "resnet50": Recipe(
        _RECIPES / "resnet50.py",
        lambda model: list(model.children()),
        study=("--batch-norm", "synchronized"),
    ),
    "bert": Recipe(_RECIPES / "bert.py", _blocks, ("tokens.", "positions.", "norm.")),
    "gpt": Recipe(ROOT / "examples/gpt/train.py", _blocks, ("embed.", "position"), words=()),
    "vit": Recipe(_RECIPES / "vit.py", _blocks, ("patches.", "class_token", "positions")),
}


def timed(recipe: Recipe) -> dict[str, int | list[Layer]]:
    """Return the batch, and the layers timed on one core in passes of the whole model and batch.

    The first layer has what is before it, and the last what is after it: embeddings, the loss.
    """
    torch.set_num_threads(1)
    training = recipe.training()
    model, batch = training.model(), training.batch
    assert isinstance(batch, int)
    samples = default_collate([training.data[index] for index in range(batch)])
    layers = recipe.layers(model)
    passes = [
        _pass(partial(_loss, training, model, samples), layers)
        for _ in progress(range(TIMINGS), "timing")
    ]
    medians = [
        [statistics.median(seconds) / batch for seconds in zip(*each, strict=True)]
        for each in zip(*passes, strict=True)
    ]
    in_layers = [sum(4 * each.numel() for each in layer.parameters()) for layer in layers]
    inside = {id(each) for layer in layers for each in layer.parameters()}
    for name, each in model.named_parameters():
        if id(each) not in inside:
            in_layers[0 if name.startswith(recipe.embeddings) else -1] += 4 * each.numel()
    return {"batch": batch, "layers": list(zip(*medians, in_layers, strict=True))}


def _loss(training: Training, model: nn.Module, samples: tuple[Tensor, Tensor]) -> Tensor:
    inputs, target = samples
    loss: Tensor = training.loss(model(inputs), target)
    return loss


def _pass(loss: Callable[[], Tensor], layers: Sequence[nn.Module]) -> tuple[list[float], ...]:
    """Return the seconds of each layer's forward and backward in one pass."""
    forward: list[float] = []
    backward: list[float] = []

    def mark(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        forward.append(time.perf_counter())
        given[0].register_hook(lambda _: backward.append(time.perf_counter()))  # type: ignore[no-untyped-call]

    # The first layer begins and ends with the whole pass.
    hooks = [layer.register_forward_pre_hook(mark) for layer in layers[1:]]
    forward.append(time.perf_counter())
    output = loss()
    forward.append(time.perf_counter())
    backward.append(forward[-1])
    output.backward()  # type: ignore[no-untyped-call]
    backward.append(time.perf_counter())
    for hook in hooks:
        hook.remove()
    return _between(forward), _between(backward)[::-1]


def _between(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]
