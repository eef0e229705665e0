"""A progress bar below a notebook's cell, in every front end that shows HTML."""

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

UPDATE_SECONDS = 0.25
"""Least time between two updates, each of which the kernel sends to the browser."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, and not a terminal or a script."""
    ipython = sys.modules.get("IPython")  # a kernel has loaded it
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def notebook_bar(what: str, *, total: float, unit: str) -> Iterator[Callable[..., None]]:
    """Show a bar during the block; yield the function that updates it."""
    from IPython.display import HTML, display  # noqa: PLC0415 -- only in a kernel

    began = time.monotonic()
    state, shown_seconds = (0.0, ""), began
    handle = display(HTML(bar_html(what, total, unit, 0.0, "", 0.0)), display_id=True)

    def update() -> None:
        done, note = state
        handle.update(HTML(bar_html(what, total, unit, done, note, time.monotonic() - began)))

    def advance(done: float, note: str = "") -> None:
        nonlocal state, shown_seconds
        if (done, note) == state:
            return
        state = (done, note)
        if time.monotonic() - shown_seconds >= UPDATE_SECONDS:
            shown_seconds = time.monotonic()
            update()

    try:
        yield advance
    finally:
        update()


def bar_html(what: str, total: float, unit: str, done: float, note: str, seconds: float) -> str:
    """Return the bar as HTML, with the seconds left; at the end, or past it, with those it took."""
    count = f"{done:,.0f}/{total:,.0f} {unit}" if unit else f"{done / total:.0%}"
    left = seconds * (total - done) / done if 0 < done < total else None
    remaining = f", {seconds:.1f} s" if left is None else f", {left:.0f} s left"
    return (
        f'<progress value="{done:g}" max="{total:g}" aria-label="{html.escape(what)}"></progress>'
        f" {html.escape(what)}: {count}{html.escape(note)}{remaining}"
    )
