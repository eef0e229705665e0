"""The job of `memory.py`: a GPT of 59 million parameters whose workers note their peak memory."""

import os
import sys
from pathlib import Path

import torch

# Loaded before the memory is first looked at: what code takes is not what the layout takes.
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.experimental
import torch.distributed.tensor.parallel

import paceline

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "gpt"))
from model import GPT, next_byte_loss

CONTEXT, BATCH, STEPS = 64, 8, 5


class RandomText(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Bytes from a seed."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        text = torch.randint(256, (CONTEXT + 1,), generator=torch.Generator().manual_seed(index))
        return text[:-1], text[1:]


def training() -> paceline.Training:
    """The training, also for the dry run."""
    return paceline.Training(
        model=lambda: GPT(layers=12, width=640, heads=8, context=CONTEXT),
        loss=next_byte_loss,
        data=RandomText(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        batch=BATCH,
        steps=STEPS,
    )


def measured() -> None:
    """Train, and note the most memory that this worker had after its second step."""
    torch.autograd.backward(torch.zeros(8, requires_grad=True).sum())
    torch.optim.AdamW([torch.zeros(8, requires_grad=True)])
    before = _status_bytes("VmRSS")
    with paceline.start(training()) as trainer:
        for number, batch in enumerate(trainer):
            if number == 2:
                Path("/proc/self/clear_refs").write_text("5")  # forget the peak of building
            trainer.step(batch)
        peak = _status_bytes("VmHWM") - before
    rank = os.environ["PACELINE_RANK"]
    Path(os.environ["MEMORY_OUTPUT"], f"{rank}.json").write_text(str(peak))


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))
