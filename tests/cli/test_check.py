"""`paceline check`: the table, its JSON and its exit codes."""

import time
from pathlib import Path

import pytest

from command import EXAMPLES, paceline, paceline_json, write_training

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "example", sorted(path.parent.name for path in EXAMPLES.glob("*/train.py"))
)
def test_every_example_passes_within_ten_seconds(example: str, tmp_path: Path) -> None:
    begin = time.monotonic()
    found = paceline_json("check", EXAMPLES / example / "train.py", folder=tmp_path)
    assert found["same"]
    assert time.monotonic() - begin < 10
