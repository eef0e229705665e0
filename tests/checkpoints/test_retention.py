"""Which checkpoints stay, what is written again, and what happens when nothing can be written."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.saved import Checkpoints, state
from paceline.checkpoints.folder import Folder
from paceline.checkpoints.retention import expired
from paceline.specs import PacelineError, Plan, Saving


def test_the_last_the_round_and_the_best(tmp_path: Path) -> None:
    saving = Saving(keep_last=2, keep_every=40, keep_best="min loss")
    checkpoints = Checkpoints(tmp_path, saving)
    for step, loss in ((10, 3.0), (20, 0.5), (30, 2.0), (40, 1.0), (50, 1.5), (60, 0.9)):
        checkpoints.save(step, loss=loss)
    assert checkpoints.steps() == [20, 40, 50, 60]
    # Another start of the run goes on with the same rules.
    again = Checkpoints(tmp_path, saving)
    again.save(70, loss=0.4)
    assert again.steps() == [40, 60, 70]


@given(
    st.dictionaries(st.integers(1, 50), st.floats(0, 1), min_size=1),
    st.integers(1, 5),
    st.none() | st.integers(1, 10),
    st.sampled_from([None, "min loss", "max loss"]),
)
def test_what_goes(
    losses: dict[int, float], last: int, every: int | None, best: str | None
) -> None:
    figures = {step: {"loss": loss} for step, loss in losses.items()}
    gone = expired(figures, Saving(keep_last=last, keep_every=every, keep_best=best))
    stay = set(losses) - gone
    assert set(sorted(losses)[-last:]) <= stay
    assert not {step for step in gone if every and step % every == 0}
    if best:
        extreme = (min if best == "min loss" else max)(losses.values())
        assert any(losses[step] == extreme for step in stay)
    else:
        assert len(stay) <= last + len([step for step in losses if every and step % every == 0])


def test_what_does_not_change_is_not_written_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    frozen = {"embedding": torch.randn(500, 10)}
    for step in (10, 20):
        checkpoints.save(step, state(step), frozen)
    inodes = [
        (tmp_path / f"step-{step:010d}" / "frozen-00000-000.safetensors").stat().st_ino
        for step in (10, 20)
    ]
    assert inodes[0] == inodes[1]
    assert 20_000 < checkpoints.told.costs[20].linked_bytes < 21_000
    found = checkpoints.newest()
    assert found is not None
    assert found[0] == 20


def test_linked_files_outlive_the_checkpoint_that_wrote_them(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, Saving(keep_last=1))
    frozen = {"embedding": torch.randn(500, 10)}
    for step in (10, 20, 30):
        checkpoints.save(step, state(step), frozen)
    assert checkpoints.steps() == [30]
    found = checkpoints.newest()
    assert found is not None
    assert found[0] == 30
    assert not checkpoints.told.flaws


def test_a_draft_of_an_earlier_start_is_cleared(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10)
    draft = checkpoints.storage.draft(20, 0)
    draft.write("model-00000-000.safetensors", [b"half a che"])
    assert checkpoints.steps() == [10]
    Folder(tmp_path).clear_drafts()
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000010"]


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    """Nobody may write there, not even root, and training goes on."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10)
    (tmp_path / ".draft-step-0000000020-0").write_text("in the way")
    checkpoints.save(20)
    assert "File exists" in checkpoints.told.flaws[20]
    (tmp_path / ".draft-step-0000000020-0").unlink()
    checkpoints.save(30)
    assert checkpoints.steps() == [10, 30]


def test_a_checkpoint_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """On a full disk, half of one would take the room of the next."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, {"odd": torch.zeros(3, dtype=torch.complex64)})
    assert "complex64" in checkpoints.told.flaws[10]
    assert list(tmp_path.iterdir()) == []


def test_a_best_that_says_nothing(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[saving]\nkeep_best = "loss"\n')
    with pytest.raises(PacelineError, match='"min loss" or "max accuracy"'):
        Plan.read(plan)
