"""However a run is struck, it goes on, and has seen each sample exactly once in every epoch."""

import random
from pathlib import Path

import pytest

from checkpoints.kills import KINDS, STEPS, Striker, Struck, small_disk, uninterrupted

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]


def _struck(seed: int, kinds: list[str], folder: Path) -> Struck:
    folder.mkdir()
    with small_disk(folder / "disk", megabytes=24) as disk:
        return Striker(folder, disk, seed).strike(kinds)


def _check(struck: Struck, expected_loss: float) -> None:
    story = "\n".join(struck.strikes)
    assert struck.summary["status"] == "finished", story
    assert struck.summary["steps"] == STEPS, story
    assert len(struck.ledger) == STEPS // 10, story
    assert all(epoch.exact for epoch in struck.ledger), (struck.ledger, story)
    assert struck.summary["final_loss"] == pytest.approx(expected_loss, rel=1e-4), story
    assert not struck.damaged, story


@pytest.mark.nightly  # every day the faults of tests/test_chaos.py are tried
def test_each_kind_of_strike(tmp_path: Path) -> None:
    kinds = list(KINDS)
    random.Random(1).shuffle(kinds)
    (tmp_path / "alone").mkdir()
    alone = uninterrupted(tmp_path / "alone")
    _check(_struck(1, kinds, tmp_path / "struck"), alone["final_loss"])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_twenty_strikes(seed: int, tmp_path: Path) -> None:
    kinds = random.Random(seed).choices(KINDS, k=20)
    (tmp_path / "alone").mkdir()
    alone = uninterrupted(tmp_path / "alone")
    _check(_struck(seed, kinds, tmp_path / "struck"), alone["final_loss"])
