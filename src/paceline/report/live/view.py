"""The live view of a run in the terminal."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from paceline.report.live.fault_lines import fault_lines, faults_in_short
from paceline.report.live.sparkline import sparkline
from paceline.report.reading.failure_cause import plain
from paceline.report.reading.merged_generations import Interruption, first_failure
from paceline.report.reading.reader import RunReader
from paceline.report.reading.run_state import RunState
from paceline.report.run.protection_figures import OFF_WORDS, off_sentences
from paceline.report.run.worker_status import (
    SILENT_SECONDS,
    WorkerStatus,
    listed,
    most_urgent,
    worker_statuses,
)
from paceline.specs import AnyEvent, Run, units

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

# rich is imported in the functions: commands without a live view should not wait for it.

RECENT_STEPS = 50
MOST_ROWS = 16
MOST_METRICS = 6
"""Of the training's own metrics; the report has all of them."""
LINES_AROUND_TABLE = 10
PLAIN_LINE_SECONDS = 10.0
SETTLE_SECONDS = 5.0
"""Seconds after a failure in which workers may still report its cause, unless the job ended."""
_STATUS_STYLE = {
    "waiting": "yellow",
    "running": "cyan",
    "finished": "green",
    "stopped": "yellow",
    "failed": "bold red",
}
_NOBODY = "no worker has started yet"
_WORD_STYLE = {"ok": "green", "slow": "yellow", "silent": "yellow", "failed": "bold red"}


def view(
    state: RunState, *, width: int = 80, rows: int = MOST_ROWS, waiting: str | None = None
) -> "RenderableType":
    """Return one screen about a run: its status, its loss and throughput, and its workers.

    With more than `rows` workers, list only the failed, silent and slowest ones. `waiting`: why its
    job waits in the queue.
    """
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    parts: list[RenderableType] = [_headline(state), _progress(state, width), _learning(state)]
    if waiting:
        parts.append(Text(plain(waiting), style="yellow"))
    recovery = _recovery(state)
    if recovery:
        parts.append(Text(recovery, style="dim"))
    off = [plain(words) for words in off_sentences(state.off)]
    if state.disk_full and not state.over:
        off.append("the disk of the run's folder is full: what happens now may be shown later")
    parts += [Text(words, style="bold red", no_wrap=True, overflow="ellipsis") for words in off]
    faults = fault_lines(state)
    parts += [Text(words, style="yellow", no_wrap=True, overflow="ellipsis") for words in faults]
    rows = max(3, rows - len(faults) - len(off))
    problem = _problem(state)
    if problem:
        parts.append(Text(problem, style="bold red" if state.status == "failed" else "yellow"))
    if state.workers:
        parts += [Text(""), *_workers(worker_statuses(state), rows)]
    return Group(*parts)


def watch(
    run: Run,
    console: "Console",
    *,
    interval_seconds: float = 0.5,
    until: Callable[[], bool] | None = None,
    on_events: Callable[[list[AnyEvent]], None] | None = None,
    why_waiting: Callable[[], str | None] = lambda: None,
) -> RunState:
    """Show a run until it is over or `until()` is true; show a run that is already over once.

    Without a terminal, print a plain line every ten seconds and the screen at the end.
    `on_events` receives all events as they are read. `why_waiting` is asked while no worker is
    heard, and says why the run's job is still in the queue.
    """
    states = _follow(RunReader(run, on_events), interval_seconds, until)
    show = _show_screen if console.is_terminal else _show_lines
    return show(states, console, why_waiting)


def line(state: RunState, waiting: str | None = None) -> str:
    """Return the run's status in one plain line, for logs; `waiting`: why its job waits."""
    total = state.planned_steps
    parts: list[str] = [state.status, *filter(None, [waiting])]
    if state.step:
        parts.append(f"step {state.step[-1]}" + (f"/{total}" if total else ""))
        parts.append(f"loss {units.loss(state.loss[-1])}")
        parts.append(f"{units.rate(_recent_rate(state))} samples/s")
        parts += [
            f"{name} {units.loss(series.value[-1])}"
            for name, series in list(state.metrics.items())[:MOST_METRICS]
        ]
    parts += faults_in_short(state)
    parts += dict.fromkeys(OFF_WORDS[each.protection] for each in state.off)
    if state.disk_full and not state.over:
        parts.append("disk full")
    left = left_seconds(state)
    if left is not None and not state.over:
        parts.append(f"{units.duration(left)} left")
    troubled = [one for one in worker_statuses(state) if one.word != "ok"]
    parts += [f"worker {one.worker.rank} {one.text}" for one in most_urgent(troubled, 3)]
    return "  ".join(parts)


def left_seconds(state: RunState) -> float | None:
    """Return the time to the last step at the recent pace, because first steps are often slow."""
    if not state.step or state.planned_steps is None:
        return None
    recent = state.seconds[-RECENT_STEPS:]
    return max(0, state.planned_steps - state.step[-1]) * math.fsum(recent) / len(recent)


def _headline(state: RunState) -> "Text":
    from rich.text import Text  # noqa: PLC0415

    text = Text(plain(state.job.name), style="bold")
    text.append("  ")
    text.append(state.status, style=_STATUS_STYLE[state.status])
    if state.started:
        first = state.started[0]
        text.append(
            f"  {units.count(first.workers, 'worker')} on {units.count(first.nodes, 'node')},"
            + plain(f" {first.device}, {first.backend} over {first.interface}"),
            style="dim",
        )
    elif not state.over:
        waits = "the workers have not started again yet" if state.restarts else _NOBODY
        text.append(f"  {waits}", style="dim")
    if state.restarts:
        text.append(f"  restarted {state.restarts} ×", style="yellow")
    return text


def _progress(state: RunState, width: int) -> "RenderableType":
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    done, total = state.step[-1] if state.step else 0, state.planned_steps
    words = f"step {done}/{total}" if total else f"step {done}"
    if total:
        words += f"  {100 * done // total} %"
    left = left_seconds(state)
    if state.over:
        words += f"  in {units.duration(math.fsum(state.seconds))}"
    elif left is not None:
        words += f"  {units.duration(left)} left"
    grid = Table.grid(padding=(0, 2))
    bar_width = max(10, min(50, width - len(words) - 2))
    grid.add_row(ProgressBar(total=total or 1, completed=done, width=bar_width), words)
    return grid


def _learning(state: RunState) -> "Text":
    from rich.text import Text  # noqa: PLC0415

    if not state.step:
        return Text("")
    text = Text("loss ")
    text.append(units.loss(state.loss[-1]), style="bold")
    text.append(f"  {sparkline(state.loss, 24)}  ", style="cyan")
    text.append(units.rate(_recent_rate(state)), style="bold")
    text.append(" samples/s")
    for name, series in list(state.metrics.items())[:MOST_METRICS]:
        text.append(f"  {name} ")
        text.append(units.loss(series.value[-1]), style="bold")
    return text


def _recovery(state: RunState) -> str:
    """Return how the run resumed, and the step of its last checkpoint."""
    restarts = [each for each in state.interruptions if each.regrouped is None]
    parts = [plain(_resumed(restarts))]
    if state.checkpoints:
        safe = f"last checkpoint: step {state.checkpoints[-1].step}"
        age = state.checkpoint_age_seconds
        if age is not None and not state.over:
            safe += f", {f'{age:.0f} s' if age < 60 else units.duration(age)} ago"
        parts.append(safe)
    return "  ".join(filter(None, parts))


def _resumed(interruptions: Sequence[Interruption]) -> str:
    """Describe the resume after the last restart; empty without one."""
    if not interruptions:
        return ""
    last = interruptions[-1]
    if last.resumed is None:
        return f"interrupted at step {last.reached} ({last.cause}); not resumed yet"
    number = len(interruptions)
    which = "an interruption" if number == 1 else f"interruption {number}"
    where = f"resumed at step {last.resumed}" if last.resumed else "restarted at step 1"
    return f"{where} after {which} ({last.cause})"


def _problem(state: RunState) -> str | None:
    if state.status == "failed":
        first = first_failure(state.last_failures)
        if first is not None:
            return plain(f"worker {first.rank} on {first.node}: {first.message}")
        code = state.ended.exit_code if state.ended else "unknown"
        return f"the job ended with exit code {code}"
    if state.step and not math.isfinite(state.loss[-1]):
        return f"the loss is {units.loss(state.loss[-1])}: check the learning rate and the data"
    if state.status == "running" and state.quiet_seconds > 6 * SILENT_SECONDS:
        return (
            f"no events from any node for {units.duration(state.quiet_seconds)};"
            " the scheduler's queue and logs/ show whether the job still runs"
        )
    return None


def _workers(found: list[WorkerStatus], rows: int) -> "list[Text | Table]":
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = listed(found, rows)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("worker", "node", "step", "ms/step", "state"):
        table.add_column(heading, justify="left" if heading in ("node", "state") else "right")
    for one in shown:
        window = one.worker.state
        table.add_row(
            str(one.worker.rank),
            Text(plain(one.worker.node)),
            str(window.step) if window else "–",
            units.milliseconds(one.step_seconds) if one.step_seconds is not None else "–",
            Text(one.text, style=_WORD_STYLE.get(one.word, "")),
        )
    if len(shown) == len(found):
        return [table]
    well = sum(one.word == "ok" for one in found)
    note = (
        f"{len(shown)} of {len(found):,} workers: those in trouble, then the slowest;"
        f" {well:,} are ok"
    )
    return [table, Text(note, style="dim")]


def _recent_rate(state: RunState) -> float:
    """Return samples/s: over recent steps while the run trains, over all steps once it is over."""
    if state.over and state.finished is not None and state.finished.seconds > 0:
        return state.finished.samples / state.finished.seconds
    steps = len(state.step) if state.over else RECENT_STEPS
    seconds = math.fsum(state.seconds[-steps:])
    return sum(state.samples[-steps:]) / seconds if seconds > 0 else 0.0


def _follow(
    reader: RunReader, interval_seconds: float, until: Callable[[], bool] | None
) -> Iterator[RunState]:
    while True:
        # Ask before reading, so that the last pass reads all events written before it turned true.
        last = until is not None and until()
        began = time.monotonic()
        state = reader.refresh()
        reading_seconds = time.monotonic() - began
        yield state
        if last or _settled(state):
            return
        # Do not poll thousands of nodes' files on a shared file system twice a second.
        time.sleep(max(interval_seconds, 4 * reading_seconds))


def _settled(state: RunState) -> bool:
    """Return whether the run is over and no event that explains its end is still expected."""
    return state.over and (state.ended is not None or state.quiet_seconds > SETTLE_SECONDS)


def _screen(state: RunState, console: "Console", waiting: str | None = None) -> "RenderableType":
    rows = max(3, min(MOST_ROWS, console.height - LINES_AROUND_TABLE))
    return view(state, width=console.width, rows=rows, waiting=waiting)


def _waiting(state: RunState, why_waiting: Callable[[], str | None]) -> str | None:
    is_heard = state.status == "running" and state.quiet_seconds < SILENT_SECONDS
    return None if is_heard or state.over else why_waiting()


def _show_screen(
    states: Iterator[RunState], console: "Console", why_waiting: Callable[[], str | None]
) -> RunState:
    from rich.live import Live  # noqa: PLC0415

    with Live(console=console, auto_refresh=False) as live:
        for state in states:
            waiting = _waiting(state, why_waiting)
            live.update(_screen(state, console, waiting), refresh=True)
    return state


def _show_lines(
    states: Iterator[RunState], console: "Console", why_waiting: Callable[[], str | None]
) -> RunState:
    printed_at = -math.inf
    for state in states:
        if not state.over and time.monotonic() - printed_at >= PLAIN_LINE_SECONDS:
            printed_at = time.monotonic()
            words = line(state, _waiting(state, why_waiting))
            console.print(words, markup=False, highlight=False, soft_wrap=True)
    console.print(_screen(state, console))
    return state
