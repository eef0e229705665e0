"""`paceline probe`: measure devices and links, on this machine or a cluster."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.console import Json, Port, Quiet, Runs, messages, print_json, say
from paceline.cli.options.cluster_options import (
    AssumeShared,
    Devices,
    Partition,
    SchedulerName,
    Testbed,
)
from paceline.cli.options.train_command import TrainCommand, script_arguments
from paceline.jobs.user_messages import short_path
from paceline.observe.progress_bar import progress_bar


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
    scheduler: SchedulerName = None,
    testbed: Testbed = None,
    assume_shared: AssumeShared = False,
    runs: Runs = "runs",
    port: Port = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure devices and links, and list those that are slower than their peers.

    Example:  paceline probe --nodes 4
    """
    from paceline.cli.tables.probe_table import show
    from paceline.jobs.cluster_run import ClusterRequest
    from paceline.jobs.probe_run import ProbeRequest
    from paceline.jobs.probe_run import probe as probe_devices
    from paceline.launch.target import Target

    _refuse_folder(output)
    if train:
        _refuse_folder(profile)
    request = ProbeRequest(
        target=Target.parse(train, script_arguments(context)) if train else None,
        workers=workers,
        cluster=ClusterRequest(
            nodes=nodes,
            devices=devices,
            partition=partition,
            scheduler=scheduler,
            testbed=testbed,
            assume_shared=assume_shared,
        ),
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
