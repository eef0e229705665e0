"""Faults that a worker of a conformance check injects into itself, at one step."""

import os
import signal
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from paceline.comm.device_kind import device_kind

FaultKind = Literal["none", "kill", "hang", "abort", "sick", "stop"]


@dataclass
class Injection:
    """One fault: its kind, and whether the step in progress is the one that it strikes."""

    kind: FaultKind
    armed: bool = False

    def in_forward(self, device: torch.device) -> None:
        """Strike before the loss: the other workers wait in the collectives of backward."""
        if not self.armed:
            return
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.kind == "sick":
            self.armed = False
            make_sick = device_kind().failure_injection()
            assert make_sick is not None, "the check asks for it before"
            make_sick(device)

    def in_backward(self, model: nn.Module, block: nn.Module) -> None:
        """Strike in the middle of backward: some gradients are summed, others are not."""
        if self.kind != "abort":
            return

        def watch(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
            del module, inputs
            if self.armed and model.training and output.requires_grad:
                output.register_hook(_die)  # type: ignore[no-untyped-call]

        block.register_forward_hook(watch)


def _die(gradient: torch.Tensor) -> None:
    del gradient
    os.kill(os.getpid(), signal.SIGKILL)
