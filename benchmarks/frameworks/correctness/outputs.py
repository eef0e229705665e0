"""What a trained model says: outputs on fixed samples, which two trainings are compared by.

Weights themselves would not do: Adam moves a weight without influence by rounding alone, such as
the bias of an attention's keys.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from benchmarks.frameworks.correctness.jobs.experts.data import digits
from benchmarks.frameworks.correctness.jobs.gan.data import points
from benchmarks.frameworks.correctness.jobs.given import chosen
from benchmarks.frameworks.correctness.jobs.resnet.data import held_out, shapes
from examples.clip.train import Clip, letters, pairs
from examples.experts.train import Mixture
from examples.gan.train import Gan
from examples.resnet.train import resnet
from examples.translation.train import PAD, Numbers, Translator, padded


def batch_of(data: Any, collate: Callable[[list[Any]], Any] = default_collate) -> Any:
    return collate([data[index] for index in range(len(data))])


def _resnet(model: Any) -> Tensor:
    image, _ = batch_of(shapes())
    logits: Tensor = model(image)
    return logits


def _clip(model: Any) -> Tensor:
    pixels, _, _ = batch_of(chosen(pairs()))
    image, _, scale = model(pixels, letters()[:1].expand(len(pixels), -1))
    _, name, _ = model(pixels[:10], letters())
    logits: Tensor = scale * image @ name.T
    return logits


def _gan(model: Any) -> Tensor:
    noise, real = batch_of(chosen(points()))
    return torch.cat([model.generator(noise), model.discriminator(real)], dim=1)


def _translation(model: Any) -> Tensor:
    inputs, target = batch_of(chosen(Numbers()), padded)
    logits: Tensor = model(*inputs)[target != PAD]
    return logits


def _experts(model: Any) -> Tensor:
    pixels, _ = batch_of(chosen(digits()))
    logits: Tensor = model(pixels)[0]
    return logits


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Tensor]]] = {
    "resnet": (resnet, _resnet),
    "clip": (Clip, _clip),
    "gan": (Gan, _gan),
    "translation": (Translator, _translation),
    "experts": (Mixture, _experts),
}


@torch.no_grad()
def outputs(case: str, weights: dict[str, Tensor] | None = None) -> Tensor:
    """Return a model's outputs; without weights, those before the training."""
    build, computed = MODELS[case]
    torch.manual_seed(0)
    model = build().eval()
    if weights is not None:
        model.load_state_dict(weights)
    return computed(model).flatten()


def apart(case: str, weights: dict[str, Tensor], plain: dict[str, Tensor]) -> float:
    """Return how far two models' outputs differ, relative to how far the plain training moved."""
    base = outputs(case, plain)
    moved = (base - outputs(case)).norm()
    return float((outputs(case, weights) - base).norm() / moved)


@torch.no_grad()
def true_accuracy(weights: dict[str, Tensor]) -> float:
    """Return the accuracy of a ResNet on the validation samples, each counted once."""
    model = resnet().eval()
    model.load_state_dict(weights)
    image, target = batch_of(held_out())
    return float((model(image).argmax(1) == target).float().mean())
