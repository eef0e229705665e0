"""The training of the conformance checks; each function is the target of a run."""

import argparse
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

import paceline
from paceline.conformance.worker.injection import Injection
from paceline.conformance.worker.model import GPT, next_token_loss, random_text
from paceline.schedulers.task_placement import placement

VOCABULARY, LAYERS, WIDTH, HEADS = 4096, 4, 64, 4
"""The head fills a bucket of 1 MB, so an all-reduce begins before the backward of the blocks."""
CONTEXT, SAMPLES = 16, 512
STEP_SECONDS_TO_STOP = 0.3
"""Workers agree to stop once per half a second, or a few steps later on accelerators: a training of
twenty fast steps would end before."""


def trained() -> None:
    """Train, and let the given fault strike at its step."""
    options = _options()
    fault = Injection(options.fault)
    here = placement()
    is_victim = here.rank == here.workers - 1
    with paceline.start(_training(options, fault)) as trainer:
        for batch in trainer:
            begins = trainer.steps - trainer.steps_left + 1
            fault.armed = is_victim and begins == options.at
            trainer.step(batch)
            if fault.kind == "stop":
                time.sleep(STEP_SECONDS_TO_STOP)
            if fault.kind == "stop" and begins == options.at and trainer.is_main:
                os.kill(os.getpid(), signal.SIGTERM)


def _training(options: argparse.Namespace, fault: Injection) -> paceline.Training:
    def model() -> nn.Module:
        gpt = GPT(VOCABULARY, LAYERS, WIDTH, HEADS)
        fault.in_backward(gpt, gpt.blocks[LAYERS // 2])
        return gpt

    def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        fault.in_forward(logits.device)
        return next_token_loss(logits, target)

    return paceline.Training(
        model=model,
        loss=loss,
        data=random_text(VOCABULARY, SAMPLES, CONTEXT),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        batch=options.batch,
        steps=options.steps,
    )


def _options() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog=Path(__file__).name)
    words.add_argument("--batch", type=int, required=True)
    words.add_argument("--steps", type=int, required=True)
    words.add_argument("--fault", default="none")
    words.add_argument("--at", type=int, default=0)
    return words.parse_args()
