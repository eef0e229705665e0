"""The examples reach the same loss on one to four workers. Minutes long."""

from pathlib import Path

import pytest

from command import EXAMPLES, paceline_json, write_training

FIFTY_STEPS = """
import dataclasses, sys
sys.path.insert(0, {example!r})
import train as example

def training():
    return dataclasses.replace(example.training(), epochs=None, steps=50)
"""


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("example", "rel"),
    [
        ("digits", 1e-5),
        ("gpt", 1e-5),
        ("clip", 1e-5),
        ("lora", 1e-5),
        ("experts", 1e-4),  # routing may round
        ("translation", 1e-2),  # of a loss that is near 0
        ("graphs", 1e-4),
        ("stream", 1e-5),
        ("gan", 1e-5),
    ],
)
def test_fifty_steps_on_one_to_four_workers(example: str, rel: float, tmp_path: Path) -> None:
    write_training(tmp_path, text=FIFTY_STEPS.format(example=str(EXAMPLES / example)))
    losses = [
        paceline_json("run", "train.py", "-n", workers, folder=tmp_path)["final_loss"]
        for workers in "1234"
    ]
    print(example, losses)
    assert losses == pytest.approx([losses[0]] * 4, rel=rel)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_episodes_that_one_and_two_workers_play(tmp_path: Path) -> None:
    train = f"{EXAMPLES}/ppo/train.py:play"
    one, two = (
        paceline_json("run", train, "-n", workers, folder=tmp_path)["final_loss"]
        for workers in "12"
    )
    assert two == pytest.approx(one, rel=1e-2)  # an action may round to another one
