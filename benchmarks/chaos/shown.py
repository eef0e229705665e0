"""The table of results, for a terminal and for the page `docs/survives.md`."""

from benchmarks.chaos.kinds import KINDS
from benchmarks.chaos.results import Results, Row
from rich.console import Console
from rich.table import Table

_WAYS = {
    "members": "the others go on with what they hold",
    "peers": "the state comes from copies in peers' memory",
    "checkpoint": "the state comes from the last checkpoint, in living processes",
    "restart": "the run is started again, from its last good checkpoint",
    "beginning": "from the beginning: there was no state yet",
    "went on": "training goes on",
}


def show(results: Results) -> None:
    """Print the table, and every promise that was not kept."""
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
    Console().print(f"{len(results.outcomes)} faults, {len(results.broken)} promises not kept")


def _title(results: Results) -> str:
    settings = sorted({run["setting"] for run in results.runs})
    return f"{len(results.outcomes)} faults in {len(results.runs)} runs ({', '.join(settings)})"


def _figures(row: Row) -> tuple[str, str, str, str]:
    return (
        f"{row.p50_seconds:.2f}",
        f"{row.p95_seconds:.2f}",
        f"{row.max_seconds:.2f}",
        f"{row.mean_steps_again:.1f} ({row.max_steps_again})",
    )


def page(results: Results) -> str:
    """The page "What Paceline survives"."""
    settings = sorted({run["setting"] for run in results.runs})
    seconds = sum(run["seconds"] for run in results.runs)
    lines = [
        "# What Paceline survives",
        "",
        f"{len(results.outcomes):,} faults were put into {len(results.runs)} real runs"
        f" ({', '.join(settings)}; {seconds / 60:.0f} minutes), and a checker that shares no code"
        " with what put them in looked at what was left behind."
        f" **{len(results.broken)} of its rules were broken.** This page is made from what it"
        " found.",
        "",
        f"Measured on {results.machine}: the workers are processes on one machine, so add what"
        " your network and the start of your processes take.",
        "",
        "| fault | how it is made | times | what happens | seconds: half of them within | 95 % |"
        " the longest | steps taken again: mean (most) |",
        "|---|---|--:|---|--:|--:|--:|--:|",
    ]
    for row in results.rows():
        kind = KINDS[row.kind]
        ways = "; ".join(
            _WAYS.get(way, way) + (f" ({times}×)" if len(row.ways) > 1 else "")
            for way, times in row.ways.items()
        )
        figures = " | ".join(_figures(row))
        lines.append(f"| {kind.title} | {kind.made} | {row.times} | {ways} | {figures} |")
    broken = [
        f"- {each.rule} ({each.setting}, seed {each.seed}): {each.message}"
        for each in results.broken
    ]
    return "\n".join([*lines, "", *broken, "", *_AFTER, ""])


_AFTER = (
    "Seconds are from the fault to the first step that counts of the generation after it; where"
    " nobody had to be left out, the longest time between two steps. Samples that were lost or"
    " counted twice: those that break the first rule below.",
    "",
    "## What is checked",
    "",
    "| rule | what it means |",
    "|---|---|",
    "| each sample once | of the steps that count, all are there, each with all its parts, and no"
    " sample is in an epoch twice or missing; by the ledger's files |",
    "| members agree | after every step, those who hold the same part of the weights hold the same"
    " bits; all end at the same step, in the same generation |",
    "| old generations are over | nothing is saved or counted by a generation after a newer one"
    " has begun; by the order of events and the numbers of steps, not by clocks |",
    "| each fault as it should | every fault is recovered from; half a second of silence and a"
    " clock that jumps raise no alarm; what must be told of is told of |",
    "| nothing is left | no process, no listening port, no file in shared memory or the folder for"
    " temporary files |",
    "| nothing grows | open files, threads and memory of a worker that lived through many"
    " generations |",
    "| learns the same | the last weights are those of an undisturbed run but for rounding (0.1 %"
    " of their norm); the loss, where the number of workers is a part of the mode |",
    "",
    "Each rule is itself tried on doctored histories, in which it must find what is wrong.",
    "",
    "## Try it",
    "",
    "```console",
    "$ python -m benchmarks.chaos --settings ddp --faults 100 --seed 1",
    "$ python -m benchmarks.chaos --settings fsdp --kinds kill,hang --faults 20 --seed 7",
    "```",
    "",
    "The order of the faults, whom they meet and at which step is a function of the seed;"
    " `--print` shows it.",
)
