"""A GPT of 59 million parameters whose workers write down their peak memory."""

import os
from pathlib import Path

import torch

# Loaded before memory is first read: code is not part of a layout's memory.
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.experimental
import torch.distributed.tensor.parallel

import paceline
from benchmarks.common.gpt import CONTEXT, RandomText
from examples.gpt.model import GPT, next_byte_loss

SAMPLES, BATCH, STEPS = 64, 8, 5


def training() -> paceline.Training:
    """Describe the training, also for the dry run."""
    return paceline.Training(
        model=lambda: GPT(layers=12, width=640, heads=8, context=CONTEXT),
        loss=next_byte_loss,
        data=RandomText(SAMPLES),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        batch=BATCH,
        steps=STEPS,
    )


def measured() -> None:
    """Train, and write this worker's peak memory after its second step."""
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
