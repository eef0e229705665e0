"""The tables."""

import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.sync.compression.candidates import BY_NAME, UNCOMPRESSED
from benchmarks.sync.compression.results import (
    Results,
    judged_by_loss,
    loss_of,
    message_ratio,
    ratio_with_warmup,
)


def show(results: Results) -> None:
    """All that was measured, and what was not reached."""
    console = Console(width=130)
    if results.sent:
        console.print(_wire(results))
    for task in dict.fromkeys(each.task for each in results.learnt):
        console.print(_quality(results, task))
    if misses := results.misses():
        console.print("not reached: " + "; ".join(misses))


def show_sweep(results: Results) -> None:
    """What every rate came to, and the best one of each candidate."""
    console = Console(width=130)
    for task in dict.fromkeys(each.task for each in results.learnt):
        runs = [each for each in results.learnt if each.task == task]
        rates = sorted({each.rate for each in runs})
        by_loss = judged_by_loss(task)
        what = "loss" if by_loss else "accuracy in %"
        table = Table("", *(f"{rate:g}" for rate in rates), "best", title=f"{task}: {what}")
        for name in dict.fromkeys(each.candidate for each in runs):
            found = {
                each.rate: each.loss if by_loss else 100 * each.accuracy
                for each in runs
                if each.candidate == name
            }
            best = (min if by_loss else max)(rates, key=found.__getitem__)
            table.add_row(name, *(f"{found[rate]:.3f}" for rate in rates), f"{best:g}")
        console.print(table)


def _wire(results: Results) -> Table:
    counts = sorted({(each.frames, each.workers) for each in results.sent})
    table = Table(title="times fewer bytes sent by a worker's interface than plain all-reduce")
    table.add_column("")
    for frames, workers in counts:
        words = f"{workers}, in frames" if frames else f"{workers} workers (messages)"
        table.add_column(words, justify="right")
    table.add_column("asked for, with 2")
    plain = [each for each in results.sent if each.candidate == UNCOMPRESSED.name]
    megabytes = {(each.frames, each.workers): each.mean_bytes / 1e6 for each in plain}
    table.add_row("none: MB in a step", *(f"{megabytes[at]:.2f}" for at in counts))
    for name in dict.fromkeys(each.candidate for each in results.sent):
        candidate = BY_NAME[name]
        if candidate == UNCOMPRESSED:
            continue
        cells = []
        for frames, workers in counts:
            words = f"{results.ratio(name, workers, frames=frames):.2f}"
            cells.append(words if frames else f"{words} ({message_ratio(candidate, workers):.2f})")
        least = candidate.least_ratio
        table.add_row(name, *cells, f"≥ {least:g}" if least else "")
    return table


def _quality(results: Results, task: str) -> Table:
    rows = results.compared(task)
    table = Table(title=f"{task}, {len(rows[0].points)} seeds, against none with the same seed")
    for words in ("", "rate", "accuracy", "points more (range)", "loss", "% more loss (range)"):
        table.add_column(words, justify="left" if not words else "right")
    table.add_column("may lose")
    table.add_column("warm-up (fewer bytes)")
    for row in rows:
        most = row.candidate.most_points
        reached = "" if not most else f"{most:g}: {'yes' if loss_of(task, row) <= most else 'no'}"
        table.add_row(
            row.candidate.name,
            f"{row.rate:g}",
            f"{row.accuracy_points:.2f} %",
            _mean_and_range(row.points),
            f"{row.loss:.4f}",
            _mean_and_range(row.loss_percent),
            reached,
            f"{row.candidate.warmup_part:.1%} ({ratio_with_warmup(row.candidate):.0f} x)"
            if row.candidate.warmup_part
            else "",
        )
    return table


def _mean_and_range(numbers: Sequence[float]) -> str:
    return f"{statistics.mean(numbers):+.2f} ({min(numbers):+.2f} … {max(numbers):+.2f})"
