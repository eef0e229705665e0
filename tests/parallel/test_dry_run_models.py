"""Dry runs of models that read, draw or ask for numbers, and of mistakes in layouts."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from paceline.specs import Layout, PacelineError
from parallel.dry_runs import WIDTH, WORDS, Decoder, first, tried


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WORDS)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(values.transpose(1, 2)).transpose(1, 2)
        return out


class TestMistakes:
    """What would strike on the cluster strikes here, in the same words."""

    @pytest.mark.parametrize(
        ("layout", "changes", "said"),
        [
            (Layout(replicas=32), {}, "the global batch is 16, but there are 32 workers"),
            (Layout(pipeline=8), {}, "8 pipeline stages need as many blocks, but Decoder has 4"),
            (
                Layout(tensor=2),
                {"model": lambda: nn.Embedding(WORDS, WORDS)},
                "tensor=2 was given, but no layer of Embedding can be sliced",
            ),
            (
                Layout(replicas=2),
                {"model": lambda: nn.Sequential(nn.Embedding(WORDS, WORDS), Turned())},
                "the model normalizes over the batch in 1.norm, but a batch is divided",
            ),
            (Layout(replicas=2, speeds=(1, 2, 3)), {}, "3 speeds, but the run has 1 nodes"),
            (Layout(replicas=2), {"loss": lambda output, target: output}, "not a scalar tensor"),
        ],
    )
    def test_of_layouts(self, layout: Layout, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(PacelineError, match=re.escape(said)):
            tried(layout, **changes)
        assert not torch.distributed.is_initialized()

    @pytest.mark.parametrize(
        ("layout", "asks", "said"),
        [
            (
                Layout(shards=2),
                lambda x: x * 2 if x.sum() > 0 else x,
                "reads a tensor's value",
            ),
            (Layout(pipeline=2), lambda x: x * x.max().item(), "reads a tensor's value"),
            (
                Layout(tensor=2),
                lambda x: x + x[x > 0].mean(),
                "returns a tensor whose shape depends on values",
            ),
            (
                Layout(),
                lambda x: x * float(x.detach().numpy().mean()),
                "converts a tensor to NumPy",
            ),
            (Layout(), lambda x: x * len(f"{x.mean():.2f}"), "formats a tensor's value"),
        ],
    )
    def test_code_that_asks_for_numbers_is_named(
        self, layout: Layout, asks: Any, said: str
    ) -> None:
        class Asking(Decoder):
            def forward(self, text: torch.Tensor) -> torch.Tensor:
                logits: torch.Tensor = asks(super().forward(text))
                return logits

        with pytest.raises(PacelineError) as error:
            tried(layout, model=Asking)
        assert said in error.value.problem
        assert "test_dry_run_models.py, line" in error.value.problem
        assert "lambda x: x" in error.value.problem
        assert "torch.where" in error.value.fix

    def test_an_error_of_the_model_is_its_own(self) -> None:
        with pytest.raises(RuntimeError, match="must have same reduction dim"):
            tried(
                Layout(shards=2),
                model=lambda: nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(3, 3)),
            )


def test_weights_from_files_are_not_read_into_memory_for_good(tmp_path: Path) -> None:
    """A model that reads its weights, or has some from NumPy, is tried like any other."""
    torch.save(Decoder().state_dict(), tmp_path / "weights.pt")

    class Read(Decoder):
        def __init__(self) -> None:
            super().__init__()
            self.load_state_dict(torch.load(tmp_path / "weights.pt"))
            self.embed.weight = nn.Parameter(torch.from_numpy(np.zeros((WORDS, WIDTH), "f4")))
            self.register_buffer("more", torch.from_numpy(np.zeros(3)))

    read, built = first(Layout(shards=2), model=Read), first(Layout(shards=2))
    assert read.memory.peak == built.memory.peak + 24  # the buffer
    assert read.transfers == built.transfers


def test_dropout_and_other_random_numbers() -> None:
    class Dropping(Decoder):
        def forward(self, text: torch.Tensor) -> torch.Tensor:
            return F.dropout(super().forward(text), 0.1)

    for layout in (Layout(replicas=2), Layout(tensor=2), Layout(pipeline=2, recompute="block")):
        assert tried(layout, model=Dropping).ranks
