"""A run as one HTML file: pictures first, opens anywhere, offline."""

import datetime
import tomllib
from pathlib import Path

from paceline.report.drawing import units
from paceline.report.drawing.brief import Brief, Tile
from paceline.report.drawing.chart import Picture
from paceline.report.drawing.packages import drawing_packages
from paceline.report.drawing.tables import flat
from paceline.report.drawing.templates import environment, javascript
from paceline.report.reading.failure import cause
from paceline.report.reading.reader import RunReader
from paceline.report.reading.run_state import RunState
from paceline.report.run.charts import pictures
from paceline.report.run.figures import Summary, summary
from paceline.report.run.goodput import goodput_sentence
from paceline.report.run.interruptions import checkpoint_sentence, interruptions_words
from paceline.report.run.prediction import prediction_picture
from paceline.report.run.run_tables import MOST_WORKERS, faults_table, run_table, workers_table
from paceline.report.run.step_breakdown import SLOW_FACTOR, breakdown_picture
from paceline.report.run.timeline import timeline_picture
from paceline.report.run.usage import usage_sentences
from paceline.report.run.worker_status import listed, standings
from paceline.specs import Cluster, Failed, Run

MOST_HOSTS = 8
MOST_FAILURES = 20
MOST_INTERRUPTIONS = 50


def render(run: Run, cluster: Cluster | None = None) -> str:
    """The page of a run, complete in itself: nothing is loaded from elsewhere.

    `cluster` says what power and devices cost, and what is drawn where that was not measured.
    """
    state = RunReader(run).refresh()
    figures = summary(state, cluster)
    said = brief(state, figures)
    found = standings(state)
    failures = sorted(state.failures, key=lambda failure: (failure.lost_peer, failure.time))
    pages = environment()
    pages.filters["moment"] = _moment
    return pages.get_template("page.html.jinja").render(
        run=run,
        state=state,
        figures=figures,
        said=said,
        pictures=said.pictures,
        javascript=javascript(drawing_packages()[1]) if said.pictures else "",
        workers=listed(found, MOST_WORKERS),
        all_workers=len(found),
        slow_factor=SLOW_FACTOR,
        slowest=max((one.slowness or 0.0 for one in found), default=0.0),
        cause=cause(state, run),
        failures=failures[:MOST_FAILURES],
        all_failures=len(failures),
        interruptions=figures.interruptions[-MOST_INTERRUPTIONS:],
        faults=faults_table(figures.faults),
        goodput=goodput_sentence(figures.faults.goodput),
        checkpoints=checkpoint_sentence(figures.checkpoints),
        trouble=figures.trouble[-MOST_FAILURES:],
        usage=figures.usage,
        usage_sentences=usage_sentences(figures.usage, figures.flops_share)
        if figures.usage
        else [],
        most_nodes=MOST_WORKERS,
        earlier_failures=_before_the_last_start(state)[:MOST_FAILURES],
        versions=_versions(run.versions_file),
        files=_files(run),
    )


def brief(state: RunState, figures: Summary) -> Brief:
    """What matters most of a run, in whatever form."""
    return Brief(
        title=figures.name,
        sentence=_sentence(state, figures),
        tiles=_tiles(figures),
        pictures=_pictures(state, figures),
        tables=[
            run_table(figures),
            workers_table(state),
            *([faults_table(figures.faults, 60)] if figures.faults.seen else []),
        ],
        remarks=_remarks(figures),
        notes=_notes(figures),
    )


def _pictures(state: RunState, figures: Summary) -> list[Picture]:
    """Nothing when there is nothing to draw."""
    if not state.step:
        return []
    altair, _ = drawing_packages()
    drawn = pictures(state, altair)
    if figures.faults.seen:
        drawn.append(timeline_picture(state, figures.faults, altair))
    if figures.breakdown is not None:
        drawn.append(breakdown_picture(state, figures.breakdown, altair))
    if figures.prediction is not None:
        drawn.append(prediction_picture(figures.prediction, altair))
    return drawn


def _sentence(state: RunState, figures: Summary) -> str:
    steps = f"{figures.steps:,}"
    of = f" of {figures.planned_steps:,}" if figures.planned_steps else ""
    times = interruptions_words(figures.interruptions)
    after = f" after {times}" if figures.interruptions else ""
    words = {
        "waiting": "No worker has started yet.",
        "running": f"Running{after}: {steps}{of} steps so far.",
        "finished": f"{f'Finished{after}' if after else 'Reached its end'}: {steps}{of} steps,"
        f" {figures.samples:,} samples.",
        "stopped": f"Stopped before its end, at the edge of a step: {steps}{of} steps{after}.",
        "failed": f"Failed after {steps}{of} steps" + f" and {times}" * bool(after) + ".",
    }[figures.status]
    if figures.status == "waiting" and after:
        words = f"Waiting for its next start{after}: {steps}{of} steps so far."
    if figures.hosts:
        shown = ", ".join(figures.hosts[:MOST_HOSTS])
        more = f" and {len(figures.hosts) - MOST_HOSTS:,} more" * (len(figures.hosts) > MOST_HOSTS)
        words += f" On {shown}{more}: {figures.device}, {figures.backend} over {figures.interface}."
    if state.began_time is not None:
        words += f" Started {_moment(state.began_time)} UTC."
    return words


def _moment(unix_seconds: float) -> str:
    when = datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC)
    return f"{when:%Y-%m-%d %H:%M}"


def _tiles(figures: Summary) -> list[Tile]:
    learned = f"first {units.loss(figures.first_loss)}" if figures.first_loss is not None else ""
    last = units.loss(figures.final_loss)
    if figures.steps and figures.final_loss is None:
        last = "not finite"
    median = figures.median_step_seconds
    startup = figures.startup_seconds
    done = units.count(figures.steps, "step")
    if figures.planned_steps == figures.steps:
        done = f"all {done}"
    elif figures.planned_steps:
        done = f"{figures.steps:,} of {units.count(figures.planned_steps, 'step')}"
    if figures.interruptions:
        done += f", {interruptions_words(figures.interruptions)}"
    return [
        ("Status", figures.status.capitalize(), done, figures.status),
        (
            "Throughput",
            units.rate(figures.samples_per_second) if figures.steps else "–",
            "samples per second",
            "",
        ),
        ("Loss so far" if figures.status == "running" else "Final loss", last, learned, ""),
        (
            "Time",
            units.duration(figures.seconds) if figures.steps else "–",
            f"{units.milliseconds(median)} ms median step" if median is not None else "",
            "",
        ),
        (
            "Workers on nodes",
            f"{figures.workers:,} on {figures.nodes:,}",
            _planned(figures) + (f"global batch {figures.batch:,}" if figures.batch else ""),
            "",
        ),
        *_goodput(figures),
        *_limits(figures),
        (
            "Start-up",
            units.duration(startup) if startup is not None else "–",
            "to the first step",
            "",
        ),
        *_energy(figures),
    ]


def _planned(figures: Summary) -> str:
    planned = figures.faults.planned_workers
    changed = figures.faults.regroups and figures.workers != planned
    return f"{planned:,} planned, " if changed else ""


def _goodput(figures: Summary) -> list[Tile]:
    found = figures.faults.goodput
    if not figures.faults.seen or found.share is None:
        return []
    small = f"{units.duration(found.lost_seconds)} lost by faults"
    return [("Goodput", units.percent(found.share), small, "")]


def _limits(figures: Summary) -> list[Tile]:
    found = figures.breakdown
    if found is None:
        return []
    small = f"{units.percent(found.limit_share)} of a step"
    if found.limit == "slow worker":
        small = f"worker {found.slow[0].rank}, with {found.slow[0].reason}: {small}"
    return [("What limits", found.limit.capitalize(), small, "")]


def _remarks(figures: Summary) -> list[str]:
    remarks = []
    if figures.sync != "allreduce":
        remarks.append(f"Replicas agreed by --sync {figures.sync}.")
    return remarks + [
        f"After step {each.after_step}, {each.sync} was chosen: {each.why}."
        for each in figures.agreements
    ]


def _energy(figures: Summary) -> list[Tile]:
    energy = figures.usage.energy if figures.usage else None
    if energy is None:
        return []
    step = energy.joules_per_step
    each = f", {units.energy(step)} per step" if step is not None else ""
    return [("Energy", units.energy(energy.joules), f"{energy.origin}{each}", "")]


def _notes(figures: Summary) -> list[str]:
    """What a reader must know to trust the figures."""
    notes = []
    if figures.restarts:
        notes.append(
            f"The run was started again {units.count(figures.restarts, 'time')}; workers and"
            " start-up are those of the last start."
        )
    if figures.trouble:
        notes.append(
            f"{units.count(len(figures.trouble), 'checkpoint')} could not be written or trusted:"
            " see Checkpoints."
        )
    if figures.nonfinite_losses:
        notes.append(
            f"At {units.count(figures.nonfinite_losses, 'step')} the loss was NaN or infinite."
        )
    if figures.unreadable_lines:
        notes.append(
            f"{units.count(figures.unreadable_lines, 'line')} in events/ could not be read (a"
            " node was cut off while it wrote); the steps in them are missing here."
        )
    return notes


def _before_the_last_start(state: RunState) -> list[tuple[int, Failed]]:
    """Failures of earlier starts of the run, with the starts' numbers."""
    numbered = [(state.start_number(each.generation), each) for each in state.earlier_failures]
    last = state.start_number(state.generation)
    return [(number, each) for number, each in numbered if number < last]


def _versions(file: Path) -> list[tuple[str, str]]:
    try:
        return list(flat(tomllib.loads(file.read_text())))
    except (OSError, ValueError):
        return []


def _files(run: Run) -> list[tuple[str, int, int]]:
    """Name, number of files and bytes of all in the folder but the secret; folders as one row."""
    rows = []
    for entry in sorted(run.path.iterdir()):
        if entry == run.secret_file:
            continue
        files = [file for file in entry.rglob("*") if file.is_file()] if entry.is_dir() else [entry]
        name = f"{entry.name}/" if entry.is_dir() else entry.name
        rows.append((name, len(files), sum(file.stat().st_size for file in files)))
    return rows
