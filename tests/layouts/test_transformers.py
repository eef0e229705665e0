"""Hugging Face's GPT-2 and Llama train under every family of layouts, their code unchanged."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from paceline.specs import Layout
from ranks import run_ranks
from train.trainings import recorded_losses

pytestmark = pytest.mark.slow

VOCABULARY, LENGTH, STEPS = 64, 12, 8

LAYOUTS = {
    "2 replicas": Layout(replicas=2),
    "2 shards": Layout(shards=2),
    "2 stages": Layout(pipeline=2),
    "2 stages, interleaved": Layout(pipeline=2, schedule="interleaved"),
    "2 slices": Layout(tensor=2),
    "2 slices, divided sequence": Layout(tensor=2, sequence=True),
    "2 stages x 2 slices": Layout(pipeline=2, tensor=2),
    "2 shards x 2 slices": Layout(shards=2, tensor=2),
}

QUICK = {("2 shards", "gpt2"), ("2 slices", "llama")}
"""The others are tried nightly."""


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(  # type: ignore[no-untyped-call]
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=LENGTH,
            n_embd=16,
            n_layer=4,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(  # type: ignore[no-untyped-call]
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=LENGTH,
        )
    )


MODELS = {"gpt2": gpt2, "llama": llama}


def train(model: str) -> list[float]:
    text = torch.randint(VOCABULARY, (40, LENGTH), generator=torch.Generator().manual_seed(1))

    def loss(output: Any, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output.logits.flatten(0, 1), target.flatten())

    paceline.fit(
        paceline.Training(
            model=MODELS[model],
            loss=loss,
            data=TensorDataset(text, text.roll(-1, 1)),
            split=lambda batch: ({"input_ids": batch[0]}, batch[1]),
            optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
            batch=16,
            steps=STEPS,
            clip=1.0,
        )
    )
    return recorded_losses()


def losses(model: str, layout: Layout, folder: Path) -> list[float]:
    found: list[float] = run_ranks(train, layout.workers, folder, model, layout=layout)[0]
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    return {model: losses(model, Layout(), tmp_path_factory.mktemp(model)) for model in MODELS}


@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param(
            name,
            model,
            marks=[] if (name, model) in QUICK else pytest.mark.nightly,
            id=f"{name}-{model}",
        )
        for name in LAYOUTS
        for model in MODELS
    ],
)
def test_it_follows_one_process(
    name: str, model: str, alone: dict[str, list[float]], tmp_path: Path
) -> None:
    found = losses(model, LAYOUTS[name], tmp_path)
    assert len(found) == STEPS
    assert found == pytest.approx(alone[model], rel=1e-4)
