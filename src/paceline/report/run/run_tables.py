"""A run in tables: its figures, its workers, its steps."""

import csv
import datetime
import io

from paceline.report.drawing import units
from paceline.report.drawing.tables import Table
from paceline.report.reading.run_state import RunState
from paceline.report.run.fault_history import FaultFigures
from paceline.report.run.figures import Summary
from paceline.report.run.interruptions import source_words
from paceline.report.run.worker_status import listed, standings

MOST_WORKERS = 64
MOST_FAULTS = 50


def run_table(figures: Summary) -> Table:
    """What a paper says about a run; what is unknown is left out."""
    startup, median, found = (
        figures.startup_seconds,
        figures.median_step_seconds,
        figures.breakdown,
    )
    rows: list[tuple[str, str | None]] = [
        ("Status", figures.status),
        ("Steps", f"{figures.steps:,}"),
        ("Samples", f"{figures.samples:,}"),
        ("Global batch", f"{figures.batch:,}" if figures.batch else None),
        ("Parameters", f"{figures.parameters:,}" if figures.parameters else None),
        ("Workers", f"{figures.workers:,}"),
        ("Nodes", f"{figures.nodes:,}"),
        ("Device", figures.device),
        ("Backend", figures.backend),
        ("Replicas agree by", figures.sync),
        ("Samples per second", units.rate(figures.samples_per_second)),
        ("Time", units.duration(figures.seconds)),
        ("Median step", None if median is None else f"{units.milliseconds(median)} ms"),
        ("Start-up", None if startup is None else units.duration(startup)),
        ("First loss", None if figures.first_loss is None else units.loss(figures.first_loss)),
        ("Final loss", None if figures.final_loss is None else units.loss(figures.final_loss)),
        (
            "Limited by",
            None
            if found is None
            else f"{found.limit}, {units.percent(found.limit_share)} of a step",
        ),
        ("Interruptions", f"{len(figures.interruptions):,}" if figures.interruptions else None),
        *_fault_rows(figures.faults),
    ]
    known = [(name, value) for name, value in rows if value is not None]
    caption = f"{figures.name}: figures of the run, measured."
    return Table("Figures", ("Quantity", "Value"), known, ("Quantity",), caption)


def workers_table(state: RunState) -> Table:
    """Every worker, or the first to look at of many."""
    found = standings(state)
    shown = listed(found, MOST_WORKERS)
    rows = [
        (
            str(one.worker.rank),
            one.worker.node,
            f"{one.worker.state.step:,}" if one.worker.state else "–",
            "–" if (mean := one.worker.mean_step_seconds) is None else units.milliseconds(mean),
            "–" if one.slowness is None else f"{one.slowness:.2f}",
            one.text,
        )
        for one in shown
    ]
    caption = "Busy: without waiting for the others, over how long the median worker is."
    if len(shown) < len(found):
        caption += f" {len(shown)} of {len(found):,} workers: those that failed, then the slowest."
    names = ("Worker", "Node", "Steps", "ms/step", "Busy", "State")
    return Table("Workers", names, rows, ("Node", "State"), caption)


def faults_table(figures: FaultFigures, longest_why: int = 500) -> Table:
    """Everything that went wrong, or the last of it."""
    shown = figures.events[-MOST_FAULTS:]
    rows = [
        (
            f"{datetime.datetime.fromtimestamp(each.time, datetime.UTC):%Y-%m-%d %H:%M:%S}",
            "–" if each.step is None else f"{each.step:,}",
            each.who,
            each.what.replace("_", " "),
            each.why if len(each.why) <= longest_why else f"{each.why[: longest_why - 1]}…",
            "–" if each.lost_seconds is None else units.duration(each.lost_seconds),
            "–" if each.source is None else source_words(each.source),
        )
        for each in shown
    ]
    caption = "Lost: away, in steps that were taken again, or in a refused step (estimated)."
    if len(shown) < len(figures.events):
        caption += f" The last {len(shown)} of {len(figures.events):,}."
    names = ("When (UTC)", "Step", "Who", "What", "Why", "Lost", "State from")
    words = ("When (UTC)", "Who", "What", "Why", "State from")
    return Table("Faults", names, rows, words, caption)


def _fault_rows(figures: FaultFigures) -> list[tuple[str, str | None]]:
    if not figures.seen:
        return []
    share = figures.goodput.share
    return [
        ("Workers lost", f"{figures.lost_workers:,}"),
        ("Regroups", f"{figures.regroups:,}"),
        ("Steps refused", f"{figures.refused_steps:,}"),
        ("Lost by faults", units.duration(figures.goodput.lost_seconds)),
        ("Goodput", None if share is None else units.percent(share)),
    ]


def steps_csv(state: RunState) -> str:
    """A row for each step; seconds it took, and its end in Unix seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("step", "loss", "seconds", "samples", "time"))
    columns = (state.step, state.loss, state.seconds, state.samples, state.time)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()
