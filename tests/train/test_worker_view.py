"""What a user's loop learns of its worker: rank, workers, device, epoch, printing once."""

import io
from pathlib import Path
from typing import Any

import paceline
from ranks import run_ranks
from train.trainings import classification


def seen() -> dict[str, Any]:
    """Return what the trainer says of this worker, and the epoch of every step."""
    printed = io.StringIO()
    epochs = []
    with paceline.start(classification(40, batch=16, epochs=2, steps=None)) as trainer:
        for batch in trainer:
            epochs.append(trainer.epoch)
            trainer.step(batch)
        trainer.print("once", 2, sep="-", file=printed)
        found = {"rank": trainer.rank, "workers": trainer.workers, "main": trainer.is_main}
        return found | {
            "device": trainer.device.type,
            "epochs": epochs,
            "after": trainer.epoch,
            "printed": printed.getvalue(),
        }


def test_every_worker_knows_itself(tmp_path: Path) -> None:
    common = {"workers": 2, "device": "cpu", "epochs": [0, 0, 0, 1, 1, 1], "after": 2}
    assert run_ranks(seen, 2, tmp_path) == [
        {"rank": 0, "main": True, "printed": "once-2\n"} | common,
        {"rank": 1, "main": False, "printed": ""} | common,
    ]


def losses_of(interrupted: bool) -> list[float]:
    """Return the loss of every step; `interrupted`: it looks ahead, breaks, starts anew."""
    losses = []
    with paceline.start(classification(40, batch=16, steps=6)) as trainer:
        if interrupted:
            next(iter(trainer))  # a look at the first batch
            for batch in trainer:
                losses.append(float(trainer.step(batch).loss))
                if len(losses) == 2:
                    break
        losses += [float(trainer.step(batch).loss) for batch in trainer]
    return losses


def test_a_second_loop_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    """It ended at once, without a word."""
    (whole,) = run_ranks(losses_of, 1, tmp_path / "whole", False)
    (again,) = run_ranks(losses_of, 1, tmp_path / "again", True)
    assert len(whole) == 6
    assert again == whole
