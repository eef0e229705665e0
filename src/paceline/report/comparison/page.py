"""Compared runs as one HTML file: which leads, by how much, and which settings differ."""

from collections.abc import Sequence

from paceline.report.comparison.compared_runs import WINDOW, Compared, Comparison
from paceline.report.comparison.comparison_charts import comparison_pictures
from paceline.report.drawing.brief import Brief, Tile
from paceline.report.drawing.chart import drawing_packages
from paceline.report.drawing.tables import Table
from paceline.report.drawing.templates import environment, javascript
from paceline.report.reading.failure_cause import plain
from paceline.specs import Layout, units

MOST_ROWS = 100
MOST_SETTINGS = 30
MOST_METRICS = 8
MOST_VALUES = 6
MOST_NUMBERS = 8
NAMES = (
    *("No.", "Run", "Workers", "Layout", "Sync", "Batch", "Samples/s", "Per worker"),
    *("Final loss", "Loss at equal samples", "Time", "Limit", "Status"),
)
WORDS = ("Run", "Layout", "Sync", "Limit", "Status")


def render_comparison(found: Comparison) -> str:
    """Return the page as self-contained HTML that loads nothing else."""
    said = comparison_brief(found)
    return (
        environment()
        .get_template("comparison.html.jinja")
        .render(
            said=said,
            pictures=said.pictures,
            javascript=javascript(drawing_packages()[1]) if said.pictures else "",
        )
    )


def comparison_brief(found: Comparison) -> Brief:
    """Return the comparison's key results, independent of the output format."""
    altair, _ = drawing_packages()
    return Brief(
        title=f"{units.count(len(found.runs), 'run')} compared",
        sentence=_sentence(found),
        tiles=_tiles(found),
        pictures=comparison_pictures(found, altair),
        tables=[runs_table(found), *_metrics_table(found), _settings_table(found)],
        notes=_notes(found),
    )


def _sentence(found: Comparison) -> str:
    fastest, best = found.fastest, found.best
    if fastest is None:
        return "No run has taken a step."
    slowest = min(found.trained, key=lambda each: each.figures.samples_per_second)
    words = f"Fastest: {_named(fastest)}"
    if slowest.figures.samples_per_second and slowest is not fastest:
        times = fastest.figures.samples_per_second / slowest.figures.samples_per_second
        words += f", {times:.2f} times as fast as the slowest, {_named(slowest)}"
    words += "."
    if best is not None:
        words += f" Lowest loss after {found.equal_samples:,} samples, which all runs have seen:"
        words += f" {_best(found, best)}."
    return words


def _best(found: Comparison, best: Compared) -> str:
    """Name the run with the lowest loss, or say that all losses agree to the digits shown."""
    known = [units.loss(loss) for loss in found.losses.values() if loss is not None]
    return "all alike" if len(known) > len(set(known)) == 1 else _named(best)


def _tiles(found: Comparison) -> list[Tile]:
    fastest, best = found.fastest, found.best
    if fastest is None:
        return [("Runs", f"{len(found.runs):,}", "none has taken a step", "waiting")]
    tiles: list[Tile] = [
        (
            "Fastest",
            units.rate(fastest.figures.samples_per_second),
            f"samples per second, {_named(fastest)}",
            "",
        )
    ]
    if best is not None:
        loss = units.loss(found.losses[best.number])
        at = f"after {found.equal_samples:,} samples, {_best(found, best)}"
        tiles.append(("Lowest loss", loss, at, ""))
    thrifty = max(found.trained, key=lambda each: each.per_worker)
    small = f"samples per second, {_named(thrifty)}"
    tiles.append(("Most per worker", units.rate(thrifty.per_worker), small, ""))
    ended = [each for each in found.trained if each.figures.status == "finished"]
    if ended:
        soonest = min(ended, key=lambda each: each.figures.seconds)
        time = units.duration(soonest.figures.seconds)
        tiles.append(("Soonest finished", time, _named(soonest), ""))
    done = f"{len(ended):,} of {len(found.runs):,}"
    grade = "finished" if len(ended) == len(found.runs) else "slow"
    return [*tiles, ("Finished", done, "runs", grade)]


def _notes(found: Comparison) -> list[str]:
    notes = []
    idle = [each for each in found.runs if not each.figures.steps]
    if idle:
        notes.append(f"Without a step, and not drawn: {_numbers(idle)}.")
    broken = [each for each in found.trained if each.figures.status == "failed"]
    if broken:
        notes.append(f"Failed: {_numbers(broken)}. Their figures end at the failure.")
    if len({each.figures.parameters for each in found.trained}) > 1:
        notes.append("The models have different numbers of parameters.")
    if len({each.settings.get("train") for each in found.trained}) > 1:
        notes.append("The runs train different files: losses and samples may not be comparable.")
    return notes


def runs_table(found: Comparison) -> Table:
    """Return a row per run; of very many, only the first and the fastest."""
    shown = found.runs
    if len(shown) > MOST_ROWS:
        by_rate = sorted(shown[1:], key=lambda each: -each.figures.samples_per_second)
        shown = [shown[0], *by_rate[: MOST_ROWS - 1]]
    caption = (
        "Per worker: samples per second and worker, over those of the first run that took a step."
        f" Loss at equal samples: mean over the last {units.percent(WINDOW)} of"
        f" {found.equal_samples:,} samples."
    )
    if len(shown) < len(found.runs):
        caption += (
            f" {len(shown)} of {len(found.runs):,} runs: the first and the fastest; --format csv"
            " and --json have all of them."
        )
    rows = [_line(found, each) for each in shown]
    marks = _marked(rows)
    if marks:
        caption += " Highlighted: differs from the first run."
    return Table("Runs", NAMES, rows, WORDS, caption, grades=marks)


def comparison_rows(found: Comparison) -> list[dict[str, str | int | float | None]]:
    """Return every run's figures as numbers; an unknown value is None."""
    return [
        {
            "number": each.number,
            "run": each.name,
            "workers": each.figures.workers,
            "nodes": each.figures.nodes,
            "layout": layout_words(each.layout),
            "sync": each.figures.sync,
            "batch": each.figures.batch,
            "samples_per_second": each.figures.samples_per_second,
            "efficiency_per_worker": found.efficiency(each),
            "final_loss": each.figures.final_loss,
            "equal_samples": found.equal_samples,
            "loss_at_equal_samples": found.losses[each.number],
            "seconds": each.figures.seconds,
            "limit": each.breakdown.limit if each.breakdown else None,
            "status": each.figures.status,
        }
        for each in found.runs
    ]


def layout_words(layout: Layout) -> str:
    """Format as `2 replicas x 2 shards`."""
    parts = {
        "replica": layout.replicas,
        "shard": layout.shards,
        "slice": layout.tensor,
        "stage": layout.pipeline,
    }
    said = [units.count(number, thing) for thing, number in parts.items() if number > 1]
    return " x ".join(said) or "one device"


def _line(found: Comparison, each: Compared) -> list[str]:
    figures, efficiency = each.figures, found.efficiency(each)
    return [
        str(each.number),
        plain(each.name),
        f"{figures.workers:,}",
        layout_words(each.layout),
        figures.sync,
        f"{figures.batch:,}" if figures.batch else "–",
        units.rate(figures.samples_per_second) if figures.steps else "–",
        "–" if efficiency is None else units.percent(efficiency),
        units.loss(figures.final_loss),
        units.loss(found.losses[each.number]),
        units.duration(figures.seconds) if figures.steps else "–",
        each.breakdown.limit if each.breakdown else "–",
        figures.status,
    ]


def _marked(rows: Sequence[Sequence[str]]) -> dict[tuple[int, int], str]:
    """Mark the cells of settings that differ from the first run's."""
    columns = [NAMES.index(name) for name in ("Workers", "Layout", "Sync", "Batch")]
    return {
        (number, column): "marked"
        for number, row in enumerate(rows)
        for column in columns
        if row[column] != rows[0][column]
    }


def _metrics_table(found: Comparison) -> list[Table]:
    """Return a table of the runs' own metrics, if there are any."""
    runs = [(each, each.all_figures.get("metrics") or {}) for each in found.runs[:MOST_ROWS]]
    names = list(dict.fromkeys(name for _, metrics in runs for name in metrics))[:MOST_METRICS]
    if not names:
        return []
    rows = [
        [str(each.number), plain(each.name)]
        + [units.loss(metrics[name]["last"]) if name in metrics else "–" for name in names]
        for each, metrics in runs
    ]
    caption = "The last value of each. --json also has the lowest and the highest."
    return [Table("Metrics", ("No.", "Run", *names), rows, ("Run",), caption)]


def _settings_table(found: Comparison) -> Table:
    rows = []
    for key, values in list(found.differs.items())[:MOST_SETTINGS]:
        said = [f"{value} ({_list(numbers)})" for value, numbers in values.items()]
        more = [f"{len(said) - MOST_VALUES} other values"] * (len(said) > MOST_VALUES)
        rows.append((key, "; ".join(said[:MOST_VALUES] + more)))
    caption = "Settings of job.toml and plan.toml that differ between runs; in brackets,"
    caption += " the runs that have them."
    if not rows:
        caption = "All runs have the same settings."
    if len(found.differs) > MOST_SETTINGS:
        caption += f" {MOST_SETTINGS} of {len(found.differs)} settings."
    return Table("What differs", ("Setting", "Values"), rows, ("Setting", "Values"), caption)


def _named(each: Compared) -> str:
    return f"run {each.number} ({plain(each.name)})"


def _numbers(runs: Sequence[Compared]) -> str:
    word = "run" if len(runs) == 1 else "runs"
    return f"{word} {_list([each.number for each in runs])}"


def _list(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:MOST_NUMBERS]))
    more = len(numbers) - MOST_NUMBERS
    return shown + f" and {more:,} more" * (more > 0)
