"""Events on a disk that takes only a part of them."""

from pathlib import Path

import pytest

from full_disk import at_most
from paceline.observe.event_writer import EventWriter
from paceline.specs import Ended, RunFolderGone, event_adapter, line_files


def event(number: int) -> Ended:
    return Ended(time=1.0, node="n1", exit_code=number)


def in_words(path: Path) -> list[str | int]:
    lines = path.read_bytes().splitlines(keepends=True)
    assert all(line.endswith(b"\n") for line in lines)
    found = [event_adapter.validate_json(line) for line in lines]
    return [each.exit_code if isinstance(each, Ended) else each.kind for each in found]


@pytest.mark.parametrize("torn_before", [False, True])
def test_events_wait_for_space_and_no_line_is_torn(tmp_path: Path, torn_before: bool) -> None:
    path = tmp_path / "n1.jsonl"
    path.write_bytes(b"half" if torn_before else b"")
    line_bytes = len(event(0).model_dump_json()) + 1
    writer = EventWriter(tmp_path, "n1")
    with at_most(len(path.read_bytes()) + 2 * line_bytes + line_bytes // 2):
        for number in range(4):
            writer.write(event(number))
        written = path.read_bytes().removeprefix(b"half\n")
        assert [each[-2:] for each in written.splitlines()] == [b"0}", b"1}"]
        assert written.endswith(b"\n")
    writer.write(event(4))
    path.write_bytes(path.read_bytes().removeprefix(b"half\n"))
    assert in_words(path) == [0, 1, "degraded", 2, 3, 4, "restored"]
    last = event_adapter.validate_json(path.read_bytes().splitlines()[-1])
    assert last.kind == "restored"
    assert (last.protection, last.note) == ("events", "no event was lost")


def test_whole_lines_of_a_short_write_are_not_written_again(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path, "n1")
    with at_most(10):
        for number in range(20):
            writer.write(event(number))
    with at_most(900):
        writer.write(event(20))
        partly = in_words(tmp_path / "n1.jsonl")
        assert partly[0] == "degraded"
        assert 20 not in partly
    writer.write(event(21))
    assert in_words(tmp_path / "n1.jsonl") == ["degraded", *range(22), "restored"]


def test_what_waits_is_bounded_and_the_loss_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "MOST_WAITING", 5)
    writer = EventWriter(tmp_path, "n1")
    with at_most(10):
        for number in range(10):
            writer.write(event(number))
    writer.write(event(10))
    path = tmp_path / "n1.jsonl"
    assert in_words(path) == ["degraded", 6, 7, 8, 9, 10, "restored"]
    assert b"6 events were lost" in path.read_bytes()


def test_a_folder_that_is_gone_is_told_from_a_full_disk(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    writer = EventWriter(folder, "n1")
    with at_most(10):
        writer.write(event(0))
        writer.check_folder()
    (folder / "n1.jsonl").unlink()
    folder.rmdir()
    writer.write(event(1))
    with pytest.raises(RunFolderGone):
        writer.check_folder()
