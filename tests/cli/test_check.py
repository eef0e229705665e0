"""`paceline check`: the table, its JSON and its exit codes."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from command import EXAMPLES, paceline, paceline_json, write_training
from paceline.jobs.training_check import check_training
from paceline.launch.target import Target
from paceline.specs import Layout, PacelineError

pytestmark = pytest.mark.slow

CHECKED_IN_CI = ("diffusion", "dry_run", "gpt")

CONTRASTIVE = """
import dataclasses
alone = training

def contrast(output, target):
    rows = F.normalize(output)
    return F.cross_entropy(rows @ rows.T, torch.arange(len(rows)))

def training():
    print("words of the script")
    return dataclasses.replace(alone(), loss=contrast)

def loop():
    with paceline.start(alone()) as trainer:
        pass
"""
"""More of a train.py: each sample's loss depends on the others in its batch."""


def test_the_table_and_its_exit_codes(tmp_path: Path) -> None:
    write_training(tmp_path, CONTRASTIVE)
    done = paceline("check", "train.py:alone", folder=tmp_path)
    assert "✓  loss" in done.stdout
    assert "✗" not in done.stdout
    done = paceline("check", "train.py", folder=tmp_path, expect=2)
    lines = done.stdout.splitlines()
    assert "words of the script" not in done.stdout
    assert lines[-2].startswith("✗  loss")
    assert "-> let the loss see the whole batch" in lines[-1]


def test_its_json(tmp_path: Path) -> None:
    write_training(tmp_path, CONTRASTIVE)
    found = paceline_json("check", "train.py", folder=tmp_path, expect=2)
    assert found["same"] is False
    (loss,) = (each for each in found["findings"] if each["what"] == "loss")
    assert (loss["state"], "together" in loss["text"]) == ("bad", True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train.py:alone", "-n", "33"), "the global batch is 32, but there are 33 workers"),
        (("train.py:loop",), "has a loop of its own"),
    ],
)
def test_what_cannot_be_checked_is_a_problem(
    words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    write_training(tmp_path, CONTRASTIVE)
    assert says in paceline("check", *words, folder=tmp_path, expect=2).stdout


@pytest.mark.alone
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(name, marks=[] if name in CHECKED_IN_CI else pytest.mark.nightly, id=name)
        for name in sorted(path.parent.name for path in EXAMPLES.glob("*/train.py"))
    ],
)
def test_every_example_passes_within_ten_seconds(example: str, tmp_path: Path) -> None:
    begin = time.monotonic()
    found = paceline_json("check", EXAMPLES / example / "train.py", folder=tmp_path)
    assert found["same"]
    assert time.monotonic() - begin < 10


RUNNING = """
import dataclasses
same = training

class Running(nn.Linear):
    def __init__(self):
        super().__init__(12, 2)
        self.register_buffer("mean", torch.zeros(12))

    def forward(self, inputs):
        self.mean.lerp_(inputs.mean(0), 0.1)
        return super().forward(inputs)

def training():
    return dataclasses.replace(same(), model=Running)
"""
"""More of a train.py: forward updates a running mean of its own."""


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (CONTRASTIVE, "the loss of a sample depends on the others in its batch"),
        (RUNNING, "forward changes mean by the samples that it sees"),
    ],
    ids=["contrastive loss", "running mean"],
)
def test_a_run_refuses_what_would_silently_differ(more: str, says: str, tmp_path: Path) -> None:
    """Both trained without a word before: each worker another loss, or other buffers."""
    write_training(tmp_path, more)
    said = paceline("run", "train.py", "-n", "2", folder=tmp_path, expect=2).stderr
    assert says in said
    assert "give --no-check" in said


@pytest.mark.nightly
def test_a_run_without_the_check_or_on_one_worker_trains(tmp_path: Path) -> None:
    write_training(tmp_path, CONTRASTIVE)
    paceline("run", "train.py", "-n", "2", "--no-check", folder=tmp_path)
    paceline("run", "train.py", folder=tmp_path)


def test_submit_can_check_here(tmp_path: Path) -> None:
    target = Target.parse(str(write_training(tmp_path, CONTRASTIVE)))
    with pytest.raises(PacelineError, match="depends on the others"):
        check_training(target, Layout(replicas=2))
    check_training(replace(target, function="alone"), Layout(replicas=2))
