"""Options for the time that a job waits in the scheduler's queue."""

from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import say

if TYPE_CHECKING:
    from paceline.schedulers.scheduler import PastWait

Queue = Annotated[
    bool,
    typer.Option(
        "--queue/--no-queue",
        help="Add the time in the queue, from what jobs of --partition and --account waited lately"
        " (default: off).",
        rich_help_panel="Cluster",
    ),
]


def read_queue(context: typer.Context, *, quiet: bool) -> "tuple[PastWait, ...] | None":
    """Return how long past jobs waited, from the scheduler that the options choose; None without
    `--queue`, or if it does not tell."""
    from paceline.cli.options.cluster_options import chosen_scheduler
    from paceline.schedulers.site import CommandFailed
    from paceline.specs import PacelineError

    given = context.params
    if not given["queue"]:
        for name in ("partition", "account", "scheduler", "testbed"):
            source = context.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":  # a site file may set them
                raise PacelineError(
                    f"--{name} {given[name]} is for the time in the queue, which was not asked for",
                    fix=f"add --queue, or leave --{name} out",
                )
        return None
    scheduler = chosen_scheduler(given["scheduler"], given["testbed"], quiet=quiet)
    try:
        return tuple(scheduler.past_waits(given["partition"], given["account"]))
    except CommandFailed as error:
        say(f"the time in the queue is left out: {error.problem}", unless=quiet)
        return None
