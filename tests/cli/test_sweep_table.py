"""A table of script arguments, as `submit --array` reads it."""

from pathlib import Path

import pytest

from paceline.cli.options.sweep_table import read_rows
from paceline.specs import PacelineError


def _table(folder: Path, text: str) -> Path:
    path = folder / "sweep.csv"
    path.write_text(text)
    return path


def test_each_row_has_its_arguments(tmp_path: Path) -> None:
    table = _table(tmp_path, 'lr, --width,note\n0.1,64,"a, b"\n\n 0.2 ,,plain\n')
    assert read_rows(table) == [
        ("--lr", "0.1", "--width", "64", "--note", "a, b"),
        ("--lr", "0.2", "--note", "plain"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a table of runs"),
        ("lr,width\n", "is not a table of runs"),
        ("lr,lr\n1,2\n", "is not a table of runs"),
        ("lr,\n1,2\n", "is not a table of runs"),
        ("lr,width\n1,2\n3\n", "row 2 of .* has 1 values for 2 names"),
        ('lr\n"1\n', "cannot be read as CSV"),
    ],
)
def test_what_is_no_table(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PacelineError, match=said):
        read_rows(_table(tmp_path, text))


def test_no_such_table(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match=r"cannot be read as CSV: .*No such file"):
        read_rows(tmp_path / "none.csv")
