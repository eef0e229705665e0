"""A progress bar with the estimated time left, for work that takes seconds or longer."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from paceline.observe.notebook_bar import in_notebook, notebook_bar


class Advance(Protocol):
    """The function that updates a progress bar."""

    def __call__(self, done: float, note: str = "") -> None:
        """Show the amount done, and a note."""


@contextmanager
def progress_bar(what: str, *, total: float = 1.0, unit: str = "", show: bool) -> Iterator[Advance]:
    """Show a progress bar during the block; yield a function that updates it.

    It appears on a terminal and below a notebook's cell.

    The function takes the amount done, of `total`, and a note to show beside the bar. With a
    `unit`, the bar counts; without, it shows a percentage and disappears at the end.
    """
    if show and in_notebook():
        with notebook_bar(what, total=total, unit=unit) as advance:
            yield advance
        return
    if not (show and sys.stderr.isatty()):
        yield lambda done, note="": None
        return
    from rich.console import Console  # noqa: PLC0415 -- only where somebody looks
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn() if unit else TaskProgressColumn(),
        TextColumn(f"{unit}{{task.fields[note]}}"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), refresh_per_second=4, transient=not unit)
    with bar:
        task = bar.add_task(what, total=total, note="")
        shown: tuple[float, str] | None = None

        def advance(done: float, note: str = "") -> None:
            nonlocal shown
            if (done, note) != shown:  # called every step, but changes only once per report
                shown = (done, note)
                bar.update(task, completed=done, note=note)

        yield advance
