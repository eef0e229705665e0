"""Options that choose nodes of a cluster, shared by `submit`, `resume`, `probe` and `study`."""

from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import say

if TYPE_CHECKING:
    from paceline.schedulers.scheduler import Scheduler

_PANEL = "Cluster"

Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        min=1,
        metavar="N",
        help="Workers per node (default: one per GPU, or 1).",
        rich_help_panel=_PANEL,
    ),
]
Partition = Annotated[
    str | None,
    typer.Option(
        "--partition",
        "-p",
        metavar="NAMES",
        help="Partition or queue of the scheduler, or several with commas (default: the site's).",
        rich_help_panel=_PANEL,
    ),
]
SchedulerName = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="NAME",
        help="Scheduler to use, such as slurm (default: the one that answers on this machine).",
        rich_help_panel=_PANEL,
    ),
]
Testbed = Annotated[
    str | None,
    typer.Option(
        "--testbed",
        metavar="NAME",
        help="Use the scheduler of this testbed.",
        rich_help_panel=_PANEL,
    ),
]
AssumeShared = Annotated[
    bool,
    typer.Option(
        "--assume-shared",
        help="Skip the check that all nodes see this machine's disks.",
        rich_help_panel=_PANEL,
    ),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Wait for the end of the run and exit with its result.",
        rich_help_panel=_PANEL,
    ),
]


def chosen_scheduler(
    name: str | None, testbed: str | None, *, quiet: bool, dry_run: bool = False
) -> "Scheduler":
    """Return the scheduler that these options choose."""
    from functools import partial

    from paceline.testbed.scheduler_choice import choose_scheduler

    return choose_scheduler(name, testbed, partial(say, unless=quiet), dry_run=dry_run)
