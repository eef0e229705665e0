"""Messages about a run that was submitted, and about one that has ended."""

from typing import TYPE_CHECKING, Any

import typer

from paceline.cli.console import messages, print_json, say
from paceline.jobs.user_messages import short_place

if TYPE_CHECKING:
    from paceline.schedulers.submission import SubmittedJob
    from paceline.specs import Run


def conclude(run: "Run", *, json: bool, quiet: bool) -> None:
    """Print how a run ended, and exit with its code."""
    from paceline.jobs.failed_run import refuse_failed
    from paceline.report import ReportedRun
    from paceline.report.run.protection_figures import off_sentences
    from paceline.report.run.sections.prediction import prediction_figures, prediction_sentence
    from paceline.specs import STOPPED_EXIT_CODE

    with run.told_if_gone():
        report = ReportedRun.read(run)
    state, result = report.state, report.summary
    if json:
        print_json(report.to_dict(), "run")
    refuse_failed(run, state)
    if not json:
        rate, loss = result.samples_per_second or 0.0, result.final_loss
        ended: str = result.status
        if ended == "stopped" and result.planned_steps:
            ended = f"stopped early at {result.steps} of {result.planned_steps} steps"
        say(
            f"{ended}: {result.steps} steps, {result.samples} samples in"
            f" {result.seconds:.1f} s ({rate:.0f} samples/s), final loss"
            f" {'-' if loss is None else format(loss, '.6g')}",
            unless=quiet,
        )
        for words in off_sentences(state.off):
            say(f"at the end, {words}", unless=quiet)
        prediction = prediction_figures(state)
        if prediction is not None:
            say(prediction_sentence(prediction), unless=quiet)
        next_word = "resume" if state.status == "stopped" else "report"
        say(f"next: paceline {next_word} {short_place(run)}", unless=quiet)
    if state.status == "stopped":
        raise typer.Exit(STOPPED_EXIT_CODE)


def conclude_submitted(submitted: "SubmittedJob", *, wait: bool, json: bool, quiet: bool) -> None:
    """Print which job was submitted and, with `wait`, how its run ended."""
    from paceline.jobs.cluster_run import wait_for

    run, job, where = submitted.run, submitted.run.job, submitted.scheduler.where
    say(
        f"job {submitted.id} submitted to {where}: {job.nodes} nodes x"
        f" {job.devices_per_node} workers{f' and {job.spares} spare nodes' if job.spares else ''}"
        f"{f', partition {job.partition}' if job.partition else ''}",
        unless=quiet,
    )
    say(f"run: {short_place(run)}", unless=quiet)
    waiting = submitted.waiting
    if waiting:
        say(waiting.sentence(submitted.scheduler.title), unless=quiet)
    if wait:
        wait_for(submitted, messages(quiet=quiet, live=not json))
        conclude(run, json=json, quiet=quiet)
    elif json:
        start = waiting.start.isoformat() if waiting and waiting.start else None
        reason = waiting.word if waiting else None
        found = {"run": run.place, "job": submitted.id, "workers": job.workers}
        print_json(found | {"waits_for": reason, "estimated_start": start}, "submit")
    else:
        say(f"next: paceline watch {short_place(run)}", unless=quiet)


def conclude_sweep(jobs: "list[SubmittedJob]", *, wait: bool, json: bool, quiet: bool) -> None:
    """Print which jobs were submitted and, with `wait`, how each run ended; exit with 1 if one
    failed."""
    from paceline.jobs.cluster_run import wait_for
    from paceline.report import ReportedRun

    for each in jobs:
        words = " ".join(each.run.job.arguments)
        say(f"job {each.id}: {short_place(each.run)}  {words}", unless=quiet)
    found: list[dict[str, Any]] = [
        {"run": each.run.place, "job": each.id, "arguments": list(each.run.job.arguments)}
        for each in jobs
    ]
    failed = False
    for each, row in zip(jobs if wait else (), found, strict=False):
        wait_for(each)
        result = ReportedRun.read(each.run).summary
        row |= {"status": result.status, "steps": result.steps, "final_loss": result.final_loss}
        loss = "-" if result.final_loss is None else format(result.final_loss, ".6g")
        failed = failed or result.status == "failed"
        ended = f"{result.status}, {result.steps} steps, final loss {loss}"
        say(f"{short_place(each.run)}: {ended}", unless=quiet or json)
    if json:
        print_json({"runs": found}, "submit.array")
    else:
        runs = " ".join(short_place(each.run) for each in jobs)
        say(f"next: paceline report {runs}", unless=quiet)
    if failed:
        raise typer.Exit(1)
