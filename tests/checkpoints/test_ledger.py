"""The ledger reads what workers wrote, whatever became of them, and nothing else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from full_disk import at_most
from paceline.checkpoints.ledger import Ledger, read_ledger
from paceline.specs import PacelineError


def _written(folder: Path, generation: int, resumed: int, steps: range) -> None:
    """Two workers with a sample each of every step, four steps an epoch."""
    for part in (0, 1):
        ledger = Ledger(
            folder, generation=generation, part=part, parts=2, resumed=resumed, samples=8
        )
        for step in steps:
            ledger.entering(step, (step - 1) // 4, ((2 * step + part) % 8,))
        ledger.close()


def test_steps_that_were_taken_again_count_once(tmp_path: Path) -> None:
    _written(tmp_path, 0, 0, range(1, 7))
    _written(tmp_path, 1, 3, range(4, 9))
    assert [epoch.exact for epoch in read_ledger(tmp_path)] == [True, True]


def test_killed_before_the_first_line_and_within_the_last(tmp_path: Path) -> None:
    _written(tmp_path, 0, 0, range(1, 5))
    (tmp_path / "start-00001-part-00000.jsonl").touch()
    with (tmp_path / "start-00000-part-00001.jsonl").open("a") as file:
        file.write('{"step":5,"ep')
    assert [epoch.exact for epoch in read_ledger(tmp_path)] == [True]


def test_what_a_lost_node_recorded_last_is_derived(tmp_path: Path) -> None:
    """Before, the steps that only the lost node's disk had recorded were incomplete."""
    _written(tmp_path, 0, 0, range(1, 5))
    lost = tmp_path / "start-00000-part-00001.jsonl"
    lost.write_text("".join(lost.read_text().splitlines(keepends=True)[:3]))
    assert read_ledger(tmp_path)[0].incomplete_steps == (3, 4)
    of_lost = Ledger(tmp_path, generation=0, part=1, parts=2, resumed=0, samples=8, derived=True)
    for step in range(2, 5):  # of which the second is recorded
        of_lost.entering(step, 0, ((2 * step + 1) % 8,))
    of_lost.close()
    (epoch,) = read_ledger(tmp_path)
    assert epoch.exact
    assert epoch.derived == 2


@pytest.mark.parametrize("full_from", [0, 100])
def test_lines_wait_while_the_disk_is_full(tmp_path: Path, full_from: int) -> None:
    with at_most(full_from):
        ledger = Ledger(tmp_path, generation=0, part=0, parts=1, resumed=0, samples=8)
        for step in range(1, 5):
            ledger.entering(step, 0, (2 * step - 2, 2 * step - 1))
            ledger.sync()
        assert not any(epoch.exact for epoch in read_ledger(tmp_path))
    ledger.close()
    assert [epoch.exact for epoch in read_ledger(tmp_path)] == [True]


@given(line=st.binary(min_size=1).filter(lambda line: b"\n" not in line and b"\r" not in line))
def test_lines_that_no_worker_has_written(
    tmp_path_factory: pytest.TempPathFactory, line: bytes
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    _written(folder, 0, 0, range(1, 5))
    with (folder / "start-00000-part-00000.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(PacelineError, match=r"start-00000-part-00000\.jsonl(.|\n)*do not trust"):
        read_ledger(folder)
