"""Command line, progress and tables in one form for all benchmarks."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

T = TypeVar("T")


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the benchmark's docstring."""
    spec = sys.modules["__main__"].__spec__
    name = spec.name.removesuffix(".__main__") if spec else ""
    return argparse.ArgumentParser(
        prog=f"python -m {name}" if name else None,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def progress(items: Iterable[T], label: str, *, quiet: bool = False) -> Iterable[T]:
    """Iterate, with a progress bar on the standard error unless `quiet`."""
    return track(items, label, console=Console(stderr=True), disable=quiet)


def table(title: str, *columns: str, texts: int = 1) -> Table:
    """Return an empty table: the first `texts` columns to the left, numbers to the right."""
    made = Table(title=title, box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number < texts else "right")
    return made


def print_goals(goals: Mapping[str, bool]) -> None:
    """Print which goals are met."""
    for goal, reached in goals.items():
        Console().print(f"{'met' if reached else 'NOT MET'}: {goal}", highlight=False)
