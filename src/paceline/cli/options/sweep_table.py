"""The table of `--array`: script arguments, a row for each run."""

import csv
from pathlib import Path

from paceline.specs import PacelineError


def read_rows(table: Path) -> list[tuple[str, ...]]:
    """Return the script arguments of each row of a CSV file: `--COLUMN CELL` for each cell.

    An empty cell leaves its argument out.
    """
    try:
        with table.open(newline="") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PacelineError(
            f"--array {table} cannot be read as CSV: {error}",
            fix="give a text file with a line of names and a line of values per run",
        ) from None
    names = [name.strip().lstrip("-") for name in lines[0]] if lines else []
    if len(lines) < 2 or not all(names) or len(set(names)) < len(names):
        raise PacelineError(
            f"--array {table} is not a table of runs",
            fix="write the names of your script's arguments on the first line, each once, and their"
            " values on a line per run",
        )
    rows = []
    for number, line in enumerate(lines[1:], start=1):
        if len(line) != len(names):
            raise PacelineError(
                f"row {number} of {table} has {len(line)} values for {len(names)} names",
                fix="give each row as many values as there are names; a value may be empty",
            )
        cells = ((name, cell.strip()) for name, cell in zip(names, line, strict=True))
        rows.append(tuple(word for name, cell in cells if cell for word in (f"--{name}", cell)))
    return rows
