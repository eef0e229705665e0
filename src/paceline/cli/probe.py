"""`paceline probe`: measure devices and links, on this machine or a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import Json, Port, Quiet, RunsDirectory, messages, print_json, say
from paceline.cli.options import allocation_options
from paceline.cli.options.cluster_options import (
    AssumeShared,
    Devices,
    Partition,
    SchedulerName,
    Testbed,
)
from paceline.cli.options.site_defaults import Site
from paceline.cli.options.train_command import TrainCommand, script_arguments
from paceline.jobs.user_messages import short_path
from paceline.observe.progress_bar import progress_bar

if TYPE_CHECKING:
    from paceline.launch.target import Target


def probe(
    context: typer.Context,
    *,
    train: Annotated[
        str | None,
        typer.Argument(metavar="[TRAIN]", help="Also time this training's model on the devices."),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Cluster file to write.")
    ] = Path("cluster.toml"),
    profile: Annotated[
        Path, typer.Option("--profile", metavar="FILE", help="With TRAIN: profile to write.")
    ] = Path("profile.toml"),
    learning: Annotated[
        bool,
        typer.Option(
            "--learning",
            help="With TRAIN: measure its critical batch here instead, and write learning.toml"
            " beside the cluster file.",
        ),
    ] = False,
    steps: Annotated[
        int, typer.Option("--steps", min=20, help="With --learning: steps to train for.")
    ] = 300,
    workers: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--workers",
            min=1,
            help="Workers on this machine (default: one per accelerator, or 1).",
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="Probe this many nodes of the cluster.")
    ] = None,
    devices: Devices = None,
    partition: Partition = None,
    account: allocation_options.Account = None,
    qos: allocation_options.Qos = None,
    constraint: allocation_options.Constraint = None,
    reservation: allocation_options.Reservation = None,
    gres: allocation_options.Gres = None,
    licenses: allocation_options.Licenses = None,
    exclusive: allocation_options.Exclusive = False,
    dependency: allocation_options.Dependency = None,
    begin: allocation_options.Begin = None,
    mail: allocation_options.Mail = None,
    scheduler_option: allocation_options.SchedulerOptions = None,
    scheduler: SchedulerName = None,
    testbed: Testbed = None,
    site: Site = None,
    assume_shared: AssumeShared = False,
    runs: RunsDirectory = "runs",
    port: Port = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure devices and links, and list those that are slower than their peers.

    Example:  paceline probe --nodes 4
    """
    if learning:
        target = _learning_target(train, script_arguments(context), nodes, testbed, scheduler)
        _probe_learning(target, output, steps, workers or 1, Path(runs), json=json, quiet=quiet)
        return
    from paceline.cli.tables.probe_table import show
    from paceline.jobs.cluster_run import ClusterRequest
    from paceline.jobs.probe_run import ProbeRequest
    from paceline.jobs.probe_run import probe as probe_devices
    from paceline.launch.target import Target

    _refuse_folder(output)
    if train:
        _refuse_folder(profile)
    here = nodes is None and testbed is None and scheduler is None
    if here:
        allocation_options.refuse_on_this_machine(
            context, fix="add --nodes N to probe a cluster, or leave it out"
        )
    request = ProbeRequest(
        target=Target.parse(train, script_arguments(context)) if train else None,
        workers=workers,
        cluster=ClusterRequest(
            nodes=nodes,
            devices=devices,
            partition=None if here else partition,
            scheduler=scheduler,
            testbed=testbed,
            assume_shared=assume_shared,
        ),
        allocation=allocation_options.given_allocation(context),
        runs=Path(runs),
        port=port,
    )
    with progress_bar("probe", show=not (quiet or json)) as advance:
        found = probe_devices(request, messages(quiet=quiet or json), advance)
    found.cluster.write(output)
    if found.profile is not None:
        found.profile.write(profile)
    if json:
        print_json(
            {"file": str(output), "run": str(found.run.path), "seconds": found.seconds}
            | {"cluster": found.cluster.model_dump(mode="json", exclude_none=True)}
        )
    elif not quiet:
        show(found.cluster)
        say(
            f"probed in {found.seconds:.0f} s: {short_path(output.absolute())}; all times in"
            f" {short_path(found.run.path)}"
        )


def _learning_target(
    train: str | None,
    arguments: tuple[str, ...],
    nodes: int | None,
    testbed: str | None,
    scheduler: str | None,
) -> "Target":
    """Return the training whose learning is probed; refuse nodes of a cluster."""
    from paceline.launch.target import Target
    from paceline.specs import PacelineError

    if train is None:
        raise PacelineError(
            "--learning was given without a training", fix="write paceline probe TRAIN --learning"
        )
    if nodes is not None or testbed is not None or scheduler is not None:
        raise PacelineError(
            "--learning was given with nodes of a cluster, but it trains on this machine",
            fix="leave --nodes, --scheduler and --testbed out: one device is enough",
        )
    return Target.parse(train, arguments)


def _probe_learning(
    target: "Target",
    output: Path,
    steps: int,
    workers: int,
    runs: Path,
    *,
    json: bool,
    quiet: bool,
) -> None:
    from paceline.cli.tables.learning_table import show
    from paceline.jobs.calibration import LEARNING_FILE
    from paceline.jobs.learning_probe import probe_learning

    _refuse_folder(output)
    file = output.with_name(LEARNING_FILE)
    found = probe_learning(target, steps, workers, runs, messages(quiet=quiet or json))
    found.learning.write(file)
    if json:
        print_json(
            {"file": str(file), "run": str(found.run.path)}
            | {"learning": found.learning.model_dump(mode="json")}
        )
    elif not quiet:
        show(found.learning)
        say(f"{short_path(file.absolute())}; the run is in {short_path(found.run.path)}")


def _refuse_folder(output: Path) -> None:
    """Refuse an output file in a missing folder, before the probe spends minutes."""
    from paceline.specs import PacelineError

    if not output.absolute().parent.is_dir():
        raise PacelineError(
            f"there is no folder {output.parent} for {output.name}",
            fix="make it, or give another file with -o",
        )


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command(cls=TrainCommand)(probe)
