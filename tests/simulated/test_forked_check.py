"""The check before a run, in a script that has computed gradients before it."""

import importlib
from pathlib import Path

import torch

from paceline.parallel.check.forked_check import refuse_differences
from paceline.specs import Layout
from paceline.specs.finding import Finding
from simulated_devices import run_sim_ranks
from train.trainings import classification


def checked_after_a_backward() -> list[Finding]:
    importlib.import_module("paceline_simulated.device")
    torch.autograd.backward(torch.zeros(1, requires_grad=True))
    return refuse_differences(
        classification(), Layout(replicas=2), lambda: (torch.device("cpu"), 2**40)
    )


def test_a_script_that_has_computed_gradients_is_not_checked(tmp_path: Path) -> None:
    """It was refused: torch computes none in a process that was forked afterwards."""
    ((note,),) = run_sim_ranks(checked_after_a_backward, 1, tmp_path)
    assert (note.what, note.state) == ("check", "note")
    assert "computed gradients already" in note.text
