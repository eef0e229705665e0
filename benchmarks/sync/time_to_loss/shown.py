"""Results as tables, as a picture, and beside what was aimed at."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.sync.time_to_loss.results import Result, Results, Row, Setting, rows_of
from paceline.report.drawing.chart import drawing_packages

_ABOUT_FIVE = (4.0, 6.0)


def show(results: Results) -> None:
    """A table for each setting, then the targets."""
    console = Console(width=150)
    for setting in results.settings:
        found = results.of(setting)
        rows = rows_of(found)
        console.print(_table(setting, rows, found))
        for words in targets(setting, rows):
            console.print(words)
        for failed in (each for each in found if each.failed):
            console.print(f"{failed.candidate}, seed {failed.seed}: {failed.failed}")
        console.print()


def _table(setting: Setting, rows: Sequence[Row], results: Sequence[Result]) -> Table:
    padded = setting.protocol == "B"
    how = "steps padded to a fixed time (emulated device)" if padded else "measured, a core each"
    title = (
        f"protocol {setting.protocol}: {setting.ranks} ranks, {how}; model {setting.model}, loss"
        f" {results[0].target:g}\nDDP's communication/computation {setting.ratio:g}:"
        f" {setting.link}; a rank computes {1e3 * setting.compute_seconds:.0f} ms in a step"
    )
    steps = [each.points[-1] for each in results if each.candidate == "DDP" and each.points]
    if steps:
        waited = statistics.median(last.seconds / last.step for last in steps)
        title += f"; DDP's steps took {1e3 * waited:.0f} ms"
    if padded:
        late = max(each.late_steps for each in results)
        title += f"; in a run at most {100 * late:.1f} % of steps took longer than padded to"
    table = Table(title=title)
    table.add_column("candidate")
    names = ("seconds [range]", "reached", "x solo", "x DDP", "MB sent", "loss")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("setting", overflow="fold")
    became = {each.candidate: f" -> {each.sync}" for each in results if each.trial.sync == "auto"}
    for row in rows:
        reached = sum(map(math.isfinite, row.seconds))
        table.add_row(
            row.name,
            f"{_number(row.median_seconds)} [{_number(min(row.seconds))}-"
            f"{_number(max(row.seconds))}]",
            f"{reached}/{len(row.seconds)}",
            _number(row.against.get("solo", math.nan)),
            _number(row.against.get("DDP", math.nan)),
            _number(row.median_bytes / 1e6),
            f"{statistics.median(row.losses):.3f}",
            row.trial.short() + became.get(row.name, ""),
        )
    table.caption = (
        "seconds, MB of all nodes: median over the seeds; x: median of the seeds' quotients;"
        " inf: not reached in the time allowed; loss: when all that reached it had seen as many"
        " samples"
    )
    return table


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"


def targets(setting: Setting, rows: Sequence[Row]) -> list[str]:
    """What was aimed at under this setting, and what came of it."""
    by_name = {row.name: row for row in rows}
    fixed = [row for row in rows if row.is_ours and row.name != "auto"]
    baselines = [row for row in rows if not row.is_ours and row.trial.part == 1]
    auto, solo, ddp = (by_name.get(name) for name in ("auto", "solo", "DDP"))
    small = by_name.get("solo, smaller batch")
    found: list[tuple[str, float, float, bool]] = []
    if not fixed or not baselines:
        return []
    best = min(fixed, key=lambda row: row.median_seconds)
    other = min(baselines, key=lambda row: row.median_seconds)
    about_five = _ABOUT_FIVE[0] <= setting.ratio <= _ABOUT_FIVE[1]
    if about_five and solo:
        most = 0.7 if setting.ranks == 2 else 0.5
        found.append((f"{best.name} to solo", best.against["solo"], most, False))
    if about_five and setting.ranks == 2:
        words = f"{best.name} to the best baseline ({other.name})"
        found.append((words, best.against[other.name], 0.85, False))
    if about_five and ddp:
        least = min(fixed, key=lambda row: row.median_bytes)
        words = f"bytes of DDP to those of {least.name}"
        found.append((words, ddp.median_bytes / least.median_bytes, 250, True))
    if auto:
        found.append((f"auto to {best.name}", auto.against[best.name], 1.05, False))
    if auto and ddp and not setting.ratio:
        found.append(("auto to DDP on an unshaped link", auto.against["DDP"], 1.03, False))
    said = [_judged(*each) for each in found]
    if small:
        said.append(f"(no target) {best.name} to {small.name}: {best.against[small.name]:.3g}")
    return said


def _judged(words: str, value: float, aim: float, at_least: bool) -> str:
    met = value >= aim if at_least else value <= aim
    sign = ">=" if at_least else "<="
    return f"{'met' if met else 'NOT MET'}: {words}: {value:.3g} (target {sign} {aim:g})"


def draw(results: Results, path: Path) -> None:
    """Time to the loss over the ratio, a line for each candidate."""
    altair, vl_convert = drawing_packages()
    values = [
        {
            "ratio": f"{setting.ratio:g}" if setting.ratio else "unshaped",
            "seconds": row.median_seconds,
            "candidate": row.name,
            "whose": "Paceline" if row.is_ours else "baseline",
        }
        for setting in sorted(results.settings, key=lambda each: each.ratio)
        for row in rows_of(results.of(setting))
        if math.isfinite(row.median_seconds)
    ]
    order = list(dict.fromkeys(each["ratio"] for each in values))
    chart = (
        altair.Chart(altair.Data(values=values), width=560, height=360)
        .mark_line(point=True)
        .encode(
            x=altair.X("ratio:N", sort=order, title="DDP's communication / computation"),
            y=altair.Y(
                "seconds:Q",
                title="seconds to the loss, median",
                scale=altair.Scale(type="log"),
            ),
            color=altair.Color("candidate:N", scale=altair.Scale(scheme="category20")),
            strokeDash=altair.StrokeDash("whose:N"),
        )
    )
    path.write_text(vl_convert.vegalite_to_svg(chart.to_dict()))
