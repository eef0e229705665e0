"""A progress bar with a time estimate, for interactive use."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, float], None]


@contextmanager
def progress_bar(steps: int, *, show: bool) -> Iterator[Advance]:
    """Show a bar over `steps`; the yielded function takes the steps done and the current loss."""
    if not (show and sys.stderr.isatty()):
        yield lambda done, loss: None
        return
    from rich.console import Console  # noqa: PLC0415 -- only where there is somebody to look
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps  loss {task.fields[loss]:.4g}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task("training", total=steps, loss=float("nan"))
        shown = 0

        def advance(done: int, loss: float) -> None:
            nonlocal shown
            if done != shown:  # called every step, but changes only once per report
                shown = done
                bar.update(task, completed=done, loss=loss)

        yield advance
