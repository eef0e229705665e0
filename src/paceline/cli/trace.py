"""`paceline trace`: merge the workers' profiles of a few steps, on one clock."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import Json, Quiet, RunFolder, print_json, say, waiting
from paceline.cli.options.grouped_command import GroupedCommand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paceline.specs import Traced


def trace(
    run: RunFolder,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="Output file, .json.gz or .json."),
    ] = Path("trace.json.gz"),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Merge the workers' profiles into one file for Perfetto and chrome://tracing.

    Example:  paceline trace runs/gpt-20260101-120000 -o trace.json.gz
    """
    from paceline.observe.traces.chrome_trace import join_traces, worker_traces
    from paceline.remote.places import run_to_read
    from paceline.specs import PacelineError

    if not output.name.endswith((".json", ".json.gz")):
        raise PacelineError(
            f"-o {output} ends in neither .json.gz nor .json, by which viewers know a trace",
            fix=f"give -o {output}.json.gz",
        )
    with waiting("the workers' profiles", unless=quiet or json), run_to_read(run) as folder:
        found = worker_traces(folder)
        traced = [each.traced for each in found.values()]
        join_traces(found, output)
    if json:
        print_json(
            {
                "trace": str(output),
                "workers": [
                    each.model_dump(mode="json") | {"exposed_seconds": each.exposed_seconds}
                    for each in traced
                ],
            },
            "trace",
        )
        return
    if not quiet:
        _print_table(traced)
    say(f"trace: {output}", unless=quiet)
    say("next: open it at https://ui.perfetto.dev or chrome://tracing", unless=quiet)


def _print_table(traced: "Iterable[Traced]") -> None:
    from paceline.cli.tables.table import console, table
    from paceline.specs.units import milliseconds, percent

    shown = table(
        "worker",
        "node",
        "steps",
        "ms/step",
        "communication ms",
        "hidden",
        "exposed ms",
        "clock ahead ms",
        words=("node",),
    )
    for each in traced:
        total = each.communication_seconds
        shown.add_row(
            str(each.rank),
            each.node,
            f"{each.first}–{each.first + each.steps - 1}",
            milliseconds(each.step_seconds),
            milliseconds(total),
            percent(each.overlapped_seconds / total) if total else "–",
            milliseconds(each.exposed_seconds),
            f"{1e3 * each.clock_offset_seconds:.3f} ± {1e3 * each.clock_uncertainty_seconds:.3f}",
        )
    console().print(shown)


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command(cls=GroupedCommand)(trace)
