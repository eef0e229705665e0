"""The summary: status, throughput, loss, time and workers."""

from paceline.report.drawing.brief import Content, Tile
from paceline.report.run.fault_history import planned_words
from paceline.report.run.figures import Summary
from paceline.report.run.interruption_figures import interruptions_words
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import units


class _Summary(Section[Summary]):
    order = 0

    def figures(self, run: ReportedRun) -> Summary:
        return run.summary

    def content(self, run: ReportedRun, figures: Summary) -> Content:
        return Content(
            tiles=_tiles(run, figures),
            rows=_rows(figures),
            remarks=_remarks(figures),
            notes=_notes(figures),
        )


SECTION = _Summary()


def _tiles(run: ReportedRun, figures: Summary) -> list[Tile]:
    done = units.count(figures.steps, "step")
    if figures.planned_steps == figures.steps:
        done = f"all {done}"
    elif figures.planned_steps:
        done = f"{figures.steps:,} of {units.count(figures.planned_steps, 'step')}"
    if run.state.interruptions:
        done += f", {interruptions_words(run.state.interruptions)}"
    last = units.loss(figures.final_loss)
    if figures.steps and figures.final_loss is None:
        last = "not finite"
    first = f"first {units.loss(figures.first_loss)}" if figures.first_loss is not None else ""
    rate = units.rate(figures.samples_per_second) if figures.steps else "–"
    time = units.duration(figures.seconds) if figures.steps else "–"
    median = figures.median_step_seconds
    step = f"{units.milliseconds(median)} ms median step" if median is not None else ""
    batch = f"global batch {figures.batch:,}" if figures.batch else ""
    return [
        ("Status", figures.status.capitalize(), done, figures.status),
        ("Throughput", rate, "samples per second", ""),
        ("Loss so far" if figures.status == "running" else "Final loss", last, first, ""),
        ("Time", time, step, ""),
        (
            "Workers on nodes",
            f"{figures.workers:,} on {figures.nodes:,}",
            planned_words(run.state, figures.workers) + batch,
            "",
        ),
    ]


def _rows(figures: Summary) -> list[tuple[str, str | None]]:
    median = figures.median_step_seconds
    return [
        ("Status", figures.status),
        ("Steps", f"{figures.steps:,}"),
        ("Samples", f"{figures.samples:,}"),
        ("Global batch", f"{figures.batch:,}" if figures.batch else None),
        ("Parameters", f"{figures.parameters:,}" if figures.parameters else None),
        ("Workers", f"{figures.workers:,}"),
        ("Nodes", f"{figures.nodes:,}"),
        ("Device", figures.device),
        ("Backend", figures.backend),
        ("Synchronization mode", figures.sync),
        ("Samples per second", units.rate(figures.samples_per_second)),
        ("Time", units.duration(figures.seconds)),
        ("Median step", None if median is None else f"{units.milliseconds(median)} ms"),
        ("First loss", None if figures.first_loss is None else units.loss(figures.first_loss)),
        ("Final loss", None if figures.final_loss is None else units.loss(figures.final_loss)),
    ]


def _remarks(figures: Summary) -> list[str]:
    remarks = []
    if figures.finished_early:
        remarks.append(f"Finished early: {figures.finished_early}.")
    if figures.sync != "allreduce":
        remarks.append(f"Synchronization mode: --sync {figures.sync}.")
    return remarks + [
        f"Auto switched to {each.sync} after step {each.after_step}: {each.why}."
        if each.after_step
        else f"Settings chosen {each.why}: --sync {each.sync}."
        for each in figures.sync_changes
    ]


def _notes(figures: Summary) -> list[str]:
    notes = []
    if figures.restarts:
        notes.append(
            f"The run was restarted {units.count(figures.restarts, 'time')}; workers and start-up"
            " time are those of the last start."
        )
    if figures.nonfinite_losses:
        notes.append(
            f"The loss was NaN or infinite at {units.count(figures.nonfinite_losses, 'step')}."
        )
    if figures.unreadable_lines:
        notes.append(
            f"{units.count(figures.unreadable_lines, 'line')} in events/ could not be read, because"
            " a node lost power or its file system while writing; their steps are missing here."
        )
    return notes
