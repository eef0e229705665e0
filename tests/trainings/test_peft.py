"""LoRA by peft: a Hugging Face model of which few parameters learn."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from trainings.comparison import LAYOUTS, Trained, killed_and_resumed, plain_loop, under_paceline
from trainings.test_language_fine_tune import described, llama

pytestmark = pytest.mark.slow


def adapted() -> nn.Module:
    from peft import LoraConfig, get_peft_model

    model: nn.Module = get_peft_model(llama(), LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    return model


def lora() -> paceline.Training:
    # Loading it takes seconds, in which a worker that has met the others would seem dead to them.
    import peft  # noqa: F401

    return described(model=adapted)


@pytest.fixture(scope="module")
def plain() -> Trained:
    def loss_of(model: nn.Module, samples: list[Any]) -> torch.Tensor:
        batch = {name: torch.stack([each[name] for each in samples]) for name in samples[0]}
        loss: torch.Tensor = model(**batch).loss
        return loss

    return plain_loop(
        lora(),
        lambda model: torch.optim.AdamW(
            [each for each in model.parameters() if each.requires_grad], lr=1e-2
        ),
        loss_of,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_equals_a_plain_loop(layout: str, plain: Trained, tmp_path: Path) -> None:
    under_paceline(lora, LAYOUTS[layout], tmp_path).check_equals(plain)


@pytest.mark.nightly
def test_it_resumes_after_a_kill(plain: Trained, tmp_path: Path) -> None:
    killed_and_resumed(lora, LAYOUTS["2 replicas"], tmp_path, killed_after=4).check_equals(
        plain.after(3)
    )
