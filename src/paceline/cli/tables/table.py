"""Tables that commands print."""

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 120
"""Columns where standard output is not a terminal."""


def console() -> "Console":
    """Return a console on standard output."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def table(*columns: str, words: Collection[str]) -> "Table":
    """Return an empty table; columns of words align left, others right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        made.add_column(column, justify="left" if column in words else "right")
    return made
