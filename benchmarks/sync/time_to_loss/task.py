"""What is learned: the byte-level GPT of the examples, on the source of the standard library."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.data import Dataset, Subset, default_collate

from benchmarks.sync.time_to_loss.sizes import Size
from examples.gpt.model import GPT, next_byte_loss
from examples.gpt.text import CONTEXT, Source

CLIP = 1.0
MOST_STEPS = 100_000
_HELD_OUT_SAMPLES = 256
_LATE = 1.05
"""Times the time to which a step is padded."""


class Padding:
    """Sleeps a step out to a fixed time: a third of it forward, two thirds backward, block by
    block, so that what overlaps with backward does so as on an accelerator."""

    def __init__(self) -> None:
        self._seconds = self._begun = 0.0
        self._steps = self._late_steps = 0

    def begin_run(self, seconds: float) -> None:
        """The steps of another run begin, which take so long."""
        self._seconds, self._steps, self._late_steps = seconds, 0, 0

    @property
    def late(self) -> float:
        """The part of the steps that took longer by themselves."""
        return self._late_steps / max(1, self._steps)

    def begin(self) -> None:
        """The forward of a step begins."""
        self._begun = time.perf_counter()
        self._steps += 1

    def wait(self, part: float) -> None:
        """Until this part of the step's time has passed."""
        spent = time.perf_counter() - self._begun
        self._late_steps += part == 1 and spent > _LATE * self._seconds
        time.sleep(max(0.0, part * self._seconds - spent))


class _WaitInBackward(torch.autograd.Function):
    """Hands its input on; backward, it waits after the block that the input went to."""

    @staticmethod
    def forward(ctx: Any, stream: torch.Tensor, padding: Padding, part: float) -> torch.Tensor:
        ctx.padding, ctx.part = padding, part
        return stream.view_as(stream)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        ctx.padding.wait(ctx.part)
        return gradient, None, None


def pad(model: nn.Module, padding: Padding) -> None:
    """Let every training step of a GPT take the time that the padding has."""
    blocks: Any = model.blocks
    count = len(blocks)
    model.register_forward_pre_hook(lambda module, args: padding.begin())
    for number, block in enumerate(blocks):
        forward, backward = (number + 1) / (3 * count), 1 - 2 * number / (3 * count)

        def before(module: nn.Module, args: Any, part: float = backward) -> Any:
            return (_WaitInBackward.apply(args[0], padding, part),)  # type: ignore[no-untyped-call]

        def after(module: nn.Module, args: Any, output: Any, part: float = forward) -> None:
            padding.wait(part)

        block.register_forward_pre_hook(before)
        block.register_forward_hook(after)


@dataclass
class Task:
    """A model of some size and its text."""

    size: Size
    padding: Padding | None = None
    """Where steps are padded."""

    def __post_init__(self) -> None:
        text = Source(size_bytes=4_000_000)
        # Held out from the end: other files than those that are learned from.
        kept = len(text) * 9 // 10
        apart = (len(text) - kept) // _HELD_OUT_SAMPLES
        self.data: Dataset[Any] = Subset(text, range(kept))
        held_out = [text[kept + number * apart] for number in range(_HELD_OUT_SAMPLES)]
        self._inputs, self._target = default_collate(held_out)
        self._judged = self._bare()

    def _bare(self) -> nn.Module:
        size = self.size
        model: nn.Module = GPT(size.layers, size.width, size.heads, context=CONTEXT)
        return model

    def model(self) -> nn.Module:
        """A model to train."""
        model = self._bare()
        if self.padding is not None:
            pad(model, self.padding)
        return model

    @property
    def parameter_bytes(self) -> int:
        """Of the weights."""
        return sum(parameter.nbytes for parameter in self._judged.parameters())

    def loss(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Of a batch."""
        found: torch.Tensor = next_byte_loss(logits, target)
        return found

    @torch.no_grad()
    def held_out_loss(self, weights: Mapping[str, torch.Tensor]) -> float:
        """Of some weights, on text that is not learned from."""
        parts = zip(self._inputs.split(64), self._target.split(64), strict=True)
        found = [
            self.loss(torch.func.functional_call(self._judged, dict(weights), (inputs,)), target)
            for inputs, target in parts
        ]
        return float(torch.stack(found).mean())
