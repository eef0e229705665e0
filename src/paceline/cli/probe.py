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
from paceline.cli.options.output_file import check_output, writing
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
        typer.Argument(metavar="TRAIN", help="Also time this training's model on the devices."),
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
    kernels: Annotated[
        float | None,
        typer.Option(
            "--kernels",
            metavar="SECONDS",
            min=0,
            max=600,
            help="Measure matrix products and attention by size again, in this time (default: as"
            " an earlier probe found them, or in 10 s on a CPU, 20 s on an accelerator; 0: leave"
            " them out).",
        ),
    ] = None,
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
    from paceline.cli.tables.probe_table import kernels_sentence, show
    from paceline.cluster.kernels.kernel_files import kernel_file, write_kernels
    from paceline.jobs.cluster_run import ClusterRequest
    from paceline.jobs.probe_run import ProbeRequest
    from paceline.jobs.probe_run import probe as probe_devices
    from paceline.launch.target import Target

    check_output(output)
    if train:
        check_output(profile)
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
        kernel_seconds=kernels,
    )
    with progress_bar("probe", show=not (quiet or json)) as advance:
        found = probe_devices(request, messages(quiet=quiet or json), advance)
    with writing(output):
        found.cluster.write(output)
    if found.profile is not None:
        with writing(profile):
            found.profile.write(profile)
    by_size = None
    if found.kernels is not None:
        by_size = kernel_file(output, found.cluster.device.name)
        with writing(by_size):
            write_kernels(by_size, found.kernels)
    if json:
        print_json(
            {"file": str(output), "run": str(found.run.path), "seconds": found.seconds}
            | {"kernels": by_size and str(by_size), "kernels_cached": found.kernels_cached}
            | {"cluster": found.cluster.model_dump(mode="json", exclude_none=True)},
            "probe",
        )
    elif not quiet:
        show(found.cluster)
        if found.kernels is not None and by_size is not None:
            say(kernels_sentence(found.kernels, short_path(by_size.absolute())))
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

    check_output(output)
    file = output.with_name(LEARNING_FILE)
    found = probe_learning(target, steps, workers, runs, messages(quiet=quiet or json))
    with writing(file):
        found.learning.write(file)
    if json:
        print_json(
            {"file": str(file), "run": str(found.run.path)}
            | {"learning": found.learning.model_dump(mode="json")},
            "probe.learning",
        )
    elif not quiet:
        show(found.learning)
        say(f"{short_path(file.absolute())}; the run is in {short_path(found.run.path)}")


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command(cls=TrainCommand)(probe)
