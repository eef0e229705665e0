"""The results as a table, for a terminal."""

from rich.console import Console
from rich.table import Table

from benchmarks.chaos.results import Results, Row


def show(results: Results) -> None:
    """Print the table and every violated invariant."""
    table = Table(title=_title(results), title_justify="left")
    for column in ("fault", "what happened"):
        table.add_column(column)
    for column in ("times", "p50 s", "p95 s", "max s", "steps again"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in results.rows():
        ways = ", ".join(f"{way} {times}x" for way, times in row.ways.items())
        table.add_row(row.kind, ways, str(row.times), *_figures(row))
    Console().print(table)
    for each in results.broken:
        Console().print(f"NOT KEPT ({each.setting}, seed {each.seed}) {each.rule}: {each.message}")
    Console().print(f"{len(results.outcomes)} faults, {len(results.broken)} violations")


def _title(results: Results) -> str:
    settings = sorted({run.setting for run in results.runs})
    return f"{len(results.outcomes)} faults in {len(results.runs)} runs ({', '.join(settings)})"


def _figures(row: Row) -> tuple[str, str, str, str]:
    return (
        f"{row.p50_seconds:.2f}",
        f"{row.p95_seconds:.2f}",
        f"{row.max_seconds:.2f}",
        f"{row.mean_steps_again:.1f} ({row.max_steps_again})",
    )
