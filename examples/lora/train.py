"""Fine-tuning with LoRA: a Hugging Face Llama whose weights stay, with narrow layers that learn.

The text is the language reference that `help()` shows, byte by byte. The pretrained weights are a
tiny Llama that is written on the first start; name the folder of any other Llama as LORA_BASE.

    paceline run examples/lora/train.py:tuned --shards 2      # trains and exports the new layers
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM

import paceline

CONTEXT, RANK = 64, 8
BASE = Path(os.environ.get("LORA_BASE", "lora-base"))
ADAPTED = ("q_proj", "v_proj")


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


def adapted(folder: Path) -> nn.Module:
    """A Llama of random weights with LoRA layers; `pretrained` fills the rest."""
    config = LlamaConfig.from_pretrained(folder)
    model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    model.requires_grad_(False)
    for name in adapted_names(folder):
        block, _, layer = name.rpartition(".")
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        setattr(model.get_submodule(block), layer, Adapted(linear))
    return model


def adapted_names(folder: Path) -> list[str]:
    layers = LlamaConfig.from_pretrained(folder).num_hidden_layers
    return [f"model.layers.{layer}.self_attn.{name}" for layer in range(layers) for name in ADAPTED]


class Prose(Dataset[dict[str, torch.Tensor]]):
    """Stretches of text as tokenizers give them: a mapping, with the labels inside."""

    def __init__(self) -> None:
        text = "".join(topics[name] for name in sorted(topics)).encode()
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self.text) // CONTEXT

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self.text[index * CONTEXT : (index + 1) * CONTEXT].long()
        return {"input_ids": tokens, "labels": tokens}


def base() -> Path:
    """The folder of the pretrained weights, written if it is not there."""
    if not BASE.exists():
        torch.manual_seed(1)
        config = LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=CONTEXT,
            pad_token_id=None,
            bos_token_id=None,
            eos_token_id=None,
        )
        part = BASE.with_suffix(f".{os.getpid()}")  # workers may be at it together
        LlamaForCausalLM(config).save_pretrained(part)  # type: ignore[no-untyped-call]
        with suppress(OSError):  # another worker was faster
            part.rename(BASE)
        shutil.rmtree(part, ignore_errors=True)
    return BASE


def training() -> paceline.Training:
    folder = base()
    return paceline.Training(
        model=lambda: adapted(folder),
        pretrained=paceline.Pretrained(
            folder,
            rename={f"{name}.": f"{name}.layer." for name in adapted_names(folder)},
            partial=True,  # the new layers begin with their own random weights
        ),
        loss=lambda output, labels: output.loss,
        data=Prose(),
        split=lambda batch: (batch, batch["labels"]),
        optimizer=lambda parameters: torch.optim.AdamW(
            [each for each in parameters if each.requires_grad], lr=1e-2
        ),
        batch=32,
        steps=60,
    )


def tuned() -> None:
    with paceline.start(training()) as trainer:
        for batch in trainer:
            trainer.step(batch)
        trainer.export("lora.safetensors")


if __name__ == "__main__":
    paceline.fit(training())
