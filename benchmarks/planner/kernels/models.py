"""Whole models: forward and backward of a micro-batch, and of one of its blocks.

Published architectures from the library `transformers`, with their own widths, heads and
vocabulary, fewer blocks and random weights; nothing is downloaded. Models, sizes and measure were
chosen before any of them was timed:

- *step*: forward, loss and backward of one micro-batch, without the optimizer, whose time no kernel
  of the table changes; *layer*: a block's part of it, the mean over blocks;
- the error is predicted / measured - 1, its mean of absolute values is the score;
- null model: a constant rate of FLOPs, the median rate of the other models in that precision.
"""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

import torch
import transformers
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import paceline
from benchmarks.planner.kernels.device import PRECISIONS, Row
from paceline.parallel.dry_run.model_profile import profile_of
from paceline.parallel.measured_model import measured
from paceline.plan.calibration.priors import priors_for
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.compute import Compute
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import Layouts
from paceline.specs import Layout, Profile
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import TrainingPrecision

BUDGET_SECONDS = 12.0
"""Time to measure one model in one precision, at least three repetitions."""
library: Any = transformers


class _Text(NamedTuple):
    """A language model, and its micro-batch."""

    build: Callable[[], Any]
    vocabulary: int
    samples: int
    tokens: int

    def training(self) -> paceline.Training:
        text = torch.randint(self.vocabulary, (self.samples, self.tokens))
        return _training(
            self.build,
            TensorDataset(text, text),
            lambda output, target: cross_entropy(output.logits.flatten(0, 1), target.flatten()),
        )


class _Images(NamedTuple):
    """A model of images, and its micro-batch."""

    build: Callable[[], Any]
    samples: int

    def training(self) -> paceline.Training:
        images = torch.randn(self.samples, 3, 224, 224)
        classes = torch.randint(2, (self.samples,))
        return _training(
            self.build,
            TensorDataset(images, classes),
            lambda output, target: cross_entropy(output.image_embeds, target),
        )


def _training(model: Any, data: TensorDataset, loss: Any) -> paceline.Training:
    return paceline.Training(
        model=model,
        loss=loss,
        data=data,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-4),
        batch=len(data),
        steps=1,
    )


def _llama(vocabulary: int, **sizes: int) -> Any:
    config = library.LlamaConfig(vocab_size=vocabulary, use_cache=False, **sizes)
    return library.LlamaForCausalLM(config)


def _gpt2() -> Any:
    config = library.GPT2Config(
        n_layer=3, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False
    )
    return library.GPT2LMHeadModel(config)


def _bert() -> Any:
    config = library.BertConfig(
        num_hidden_layers=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return library.BertForMaskedLM(config)


def _smollm() -> Any:
    return _llama(
        49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=3,
        num_attention_heads=9,
        num_key_value_heads=3,
    )


def _tinyllama() -> Any:
    return _llama(
        32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=2,
        num_attention_heads=32,
        num_key_value_heads=4,
    )


def _qwen() -> Any:
    config = library.Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=2,
        num_attention_heads=14,
        num_key_value_heads=2,
        use_cache=False,
    )
    return library.Qwen2ForCausalLM(config)


def _clip() -> Any:
    config = library.CLIPVisionConfig(patch_size=16, num_hidden_layers=3)
    return library.CLIPVisionModelWithProjection(config)


MODELS: dict[str, _Text | _Images] = {
    "GPT-2, 2 x 256": _Text(_gpt2, 50257, 2, 256),
    "BERT base, 4 x 128": _Text(_bert, 30522, 4, 128),
    "SmolLM 135M, 2 x 256": _Text(_smollm, 49152, 2, 256),
    "TinyLlama 1.1B, 1 x 256": _Text(_tinyllama, 32000, 1, 256),
    "Qwen2.5 0.5B, 1 x 256": _Text(_qwen, 151936, 1, 256),
    "CLIP ViT-B/16, 4 images": _Images(_clip, 4),
}


class _Timed(NamedTuple):
    """A model's part in one precision."""

    kind: str
    model: str
    precision: str
    flops: float
    measured: float
    formula: float
    kernels: float


def models(plain: Cluster, probed: Cluster, device: torch.device) -> Iterator[Row]:
    """Yield step and layer of each model."""
    timed = [
        each
        for name, model in MODELS.items()
        for precision in PRECISIONS
        for each in _timed(name, model.training(), precision, (plain, probed), device)
    ]
    for kind in ("step", "layer"):
        for each in timed:
            if each.kind != kind:
                continue
            rates = [
                other.flops / other.measured
                for other in timed
                if (other.kind, other.precision) == (kind, each.precision)
                and other.model != each.model
            ]
            null = each.flops / median(rates)
            what = f"{each.model}: {kind}"
            yield Row(kind, what, each.precision, each.measured, each.formula, each.kernels, null)


def _timed(
    name: str,
    training: paceline.Training,
    precision: TrainingPrecision,
    clusters: tuple[Cluster, Cluster],
    device: torch.device,
) -> Iterator[_Timed]:
    layout = Layout(precision=precision)
    profile = profile_of(training, name, layout)
    times = measured(training, layout, device=device, budget_seconds=BUDGET_SECONDS)
    samples, parts = times.samples[-1], times.parts[-1]  # of the largest that there was time for
    count = profile.block.count
    predicted = [_predicted(profile, each, clusters[0], precision, samples) for each in clusters]
    whole = sum(each.count * (each.forward_flops + each.backward_flops) for each in profile.layers)
    block = profile.block.forward_flops + profile.block.backward_flops
    steps, layers = ([each[at] for each in predicted] for at in range(2))
    yield _Timed("step", name, precision, samples * whole, sum(parts), *steps)
    yield _Timed("layer", name, precision, samples * block, (parts[1] + parts[4]) / count, *layers)


def _predicted(
    profile: Profile, cluster: Cluster, plain: Cluster, precision: str, samples: int
) -> tuple[float, float]:
    """Return the seconds of a micro-batch, and of a block of it."""
    compute = Compute(cluster, precision, Engine(), Coefficients.prior(priors_for(plain)))
    one = Layouts.of([Layout(micro_batch=samples)], samples)
    seconds = [float(compute.passes(each, one).all[0]) for each in profile.layers]
    whole = sum(each.count * took for each, took in zip(profile.layers, seconds, strict=True))
    return whole, seconds[1]
