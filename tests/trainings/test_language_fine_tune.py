"""Fine-tuning: a Hugging Face Llama from pretrained weights, whole, in part, and with LoRA."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.schedulers.task_placement import run_folder
from trainings.comparison import (
    LAYOUTS,
    Describe,
    Trained,
    killed_and_resumed,
    plain_steps,
    seeded_model,
    under_paceline,
)

pytestmark = pytest.mark.slow

VOCABULARY, LENGTH, RANK = 32, 8, 2
FOLDER, BLOCKS = "pretrained", "blocks.safetensors"


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(  # type: ignore[no-untyped-call]
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=LENGTH,
        )
    )


def beside_run(name: str) -> Path:
    """A file of the test, beside the folder of the run that this process is in."""
    folder = run_folder()
    return folder.parent / name if folder else Path(name)


class Adapted(nn.Module):
    """A linear layer that stays as it is, plus a product of two narrow ones that learns."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(inputs) + self.up(self.down(inputs))
        return output


def adapted_llama() -> nn.Module:
    model: nn.Module = llama()
    model.requires_grad_(False)
    for block in model.model.layers:  # type: ignore[union-attr]
        block.self_attn.q_proj = Adapted(block.self_attn.q_proj)
        block.self_attn.v_proj = Adapted(block.self_attn.v_proj)
    return model


class Texts(torch.utils.data.Dataset[Any]):
    """Samples as tokenizers give them: a mapping, with the labels inside."""

    def __len__(self) -> int:
        return 44

    def __getitem__(self, index: int) -> Any:
        tokens = (torch.arange(LENGTH) * (index % 5 + 1) + index) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}


def described(**changes: Any) -> paceline.Training:
    """Batches of 12 do not divide 44 samples: the last of an epoch has 8."""
    # Loading it takes seconds, in which a worker that has met the others would seem dead to them.
    from transformers import LlamaForCausalLM  # noqa: F401

    fields: dict[str, Any] = {
        "model": llama,
        "loss": lambda output, target: output.loss,
        "data": Texts(),
        "split": lambda batch: (batch, batch["labels"]),
        "optimizer": lambda parameters: torch.optim.AdamW(
            [each for each in parameters if each.requires_grad], lr=1e-2
        ),
        "batch": 12,
        "steps": 6,
    }
    return paceline.Training(**fields | changes)


def whole() -> paceline.Training:
    return described(pretrained=beside_run(FOLDER))


def partial() -> paceline.Training:
    """Only the blocks are loaded, from a file in which they have other names."""
    given = paceline.Pretrained(beside_run(BLOCKS), rename={"b.": "model."}, partial=True)
    return described(pretrained=given)


def lora() -> paceline.Training:
    return described(
        model=adapted_llama,
        pretrained=paceline.Pretrained(
            beside_run(FOLDER),
            partial=True,
            rename={
                f"model.layers.{number}.self_attn.{name}.": (
                    f"model.layers.{number}.self_attn.{name}.layer."
                )
                for number in range(2)
                for name in ("q_proj", "v_proj")
            },
        ),
    )


@cache
def pretrained_state() -> dict[str, torch.Tensor]:
    torch.manual_seed(9)
    state: dict[str, torch.Tensor] = llama().state_dict()
    return state


def start(kind: Describe) -> nn.Module:
    """The model that the plain loop starts from, filled by load_state_dict."""
    model = seeded_model(kind())
    if kind is lora:
        base = {
            (name.replace("q_proj.", "q_proj.layer.").replace("v_proj.", "v_proj.layer.")): each
            for name, each in pretrained_state().items()
        }
    else:
        base = dict(pretrained_state())
    if kind is partial:
        base = {name: each for name, each in base.items() if ".layers." in name}
    model.load_state_dict(base, strict=False)
    return model


@cache
def plain(kind: Describe) -> Trained:
    training, model, losses = kind(), start(kind), []
    learning = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-2)
    for samples in plain_steps(training):
        batch = {name: torch.stack([each[name] for each in samples]) for name in samples[0]}
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Trained.of(losses, model)


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = llama()
    model.load_state_dict(pretrained_state())
    model.save_pretrained(tmp_path / FOLDER, max_shard_size=4_000)
    blocks = {name: each for name, each in pretrained_state().items() if ".layers." in name}
    save_file(
        {name.replace("model.", "b.", 1): each for name, each in blocks.items()},
        tmp_path / BLOCKS,
    )


@pytest.mark.parametrize(
    "kind",
    [pytest.param(whole, marks=pytest.mark.nightly), partial, lora],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param("1 worker", marks=pytest.mark.nightly),
        pytest.param("2 replicas", marks=pytest.mark.nightly),
        "2 shards",
    ],
)
def test_it_equals_a_plain_loop(layout: str, kind: Describe, tmp_path: Path) -> None:
    under_paceline(kind, LAYOUTS[layout], tmp_path).check_equals(plain(kind))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [whole, lora], ids=lambda kind: kind.__name__)
def test_it_resumes_after_a_kill(kind: Describe, tmp_path: Path) -> None:
    """The checkpoint is newer than the pretrained weights, which are read again."""
    trained = killed_and_resumed(kind, LAYOUTS["2 shards"], tmp_path, killed_after=4)
    trained.check_equals(plain(kind).after(3))
