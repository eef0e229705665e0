"""`paceline submit`: train on the cluster, through Slurm."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.console import (
    Json,
    Port,
    PowerLimit,
    Quiet,
    RunName,
    Runs,
    To,
    TraceSteps,
    Train,
    print_json,
    say,
)
from paceline.cli.options.checkpoints import Checkpoints, KeepLedger, SaveEvery, given_saving
from paceline.cli.options.layout import PlanFile, chosen_plan, takes_layout
from paceline.cli.run import conclude, default_name, shown

if TYPE_CHECKING:
    from paceline.schedulers.slurm_client import Slurm
    from paceline.specs import Run

Devices = Annotated[
    int | None,
    typer.Option("--devices", min=1, help="Workers per node: one per GPU, or 1, by default."),
]
Partition = Annotated[
    str | None, typer.Option("--partition", "-p", help="The default one, if not given.")
]
Testbed = Annotated[
    str | None, typer.Option("--testbed", metavar="NAME", help="Use this testbed's Slurm.")
]
AssumeShared = Annotated[
    bool, typer.Option("--assume-shared", help="All nodes see this machine's disks.")
]


@takes_layout
def submit(
    *,
    train: Train,
    layout: dict[str, Any],
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="Nodes of the cluster: the plan's, or 1.")
    ] = None,
    devices: Devices = None,
    spares: Annotated[
        int, typer.Option("--spares", min=0, help="More nodes, to stand by for one that is lost.")
    ] = 0,
    plan: PlanFile = None,
    save_every: SaveEvery = None,
    checkpoints: Checkpoints = None,
    ledger: KeepLedger = False,
    trace: TraceSteps = None,
    partition: Partition = None,
    time: Annotated[
        str | None, typer.Option("--time", "-t", help="Limit: minutes, H:MM:SS or D-HH.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", help="Memory per node, such as 64G.")
    ] = None,
    runs: Runs = "runs",
    name: RunName = None,
    port: Port = None,
    power_limit: PowerLimit = None,
    to: To = None,
    testbed: Testbed = None,
    assume_shared: AssumeShared = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until the end; exit with the run's result.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the sbatch script and submit nothing.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on the cluster, through Slurm.

    Example:  paceline submit train.py --nodes 4 --time 2:00:00 --wait
    """
    import sys

    from paceline.cli.options.listeners import given_listeners
    from paceline.launch.target import Target
    from paceline.observe.versions import write_versions
    from paceline.schedulers import slurm as launcher
    from paceline.schedulers.slurm_client import megabytes_of, minutes_of
    from paceline.specs import Job, Limits, Plan, Run

    target = Target.parse(train)
    planned = Plan.read(plan) if plan else Plan()
    slurm = reached_slurm(testbed, quiet=quiet)
    wanted = Job(
        name=name or default_name(target),
        train=target.file,
        function=target.function,
        trace_steps=trace,
        nodes=nodes or planned.nodes or 1,
        spares=spares,
        partition=partition,
        limits=Limits(
            minutes=minutes_of(time) if time else None,
            memory_megabytes=megabytes_of(memory) if memory else None,
        ),
        port=port,
        power_limit_watts=power_limit,
        folder=Path.cwd(),
        python=Path(sys.executable),
        listeners=given_listeners(to),
    )
    job, warnings = launcher.fitted(wanted, slurm, devices or planned.devices_per_node)
    if not assume_shared:
        launcher.check_shared([target.file, Path(runs).absolute().parent], slurm)
    for warning in warnings:
        say(f"warning: {warning}", unless=quiet)
    saving = given_saving(save_every, checkpoints, ledger=ledger)
    chosen = chosen_plan(plan, job.workers, job.workers, layout, saving)
    if dry_run:
        there = Run(Path(runs).absolute() / f"{job.name}-TIME")
        print(launcher.script(job, there, chosen.faults), end="")
        return
    folder = Run.create(Path(runs), job, chosen)
    write_versions(folder.versions_file, target.file)
    train_there(folder, slurm, wait=wait, json=json, quiet=quiet)


def train_there(run: "Run", slurm: "Slurm", *, wait: bool, json: bool, quiet: bool) -> None:
    """Submit a run's job and, if asked to, stay until its end."""
    from paceline.schedulers import slurm as launcher

    job = run.job
    job_id = launcher.submit(run, slurm)
    say(
        f"job {job_id} submitted to {slurm.name}: {job.nodes} nodes x {job.devices_per_node}"
        f" workers{f' and {job.spares} to stand by' if job.spares else ''},"
        f" partition {job.partition}",
        unless=quiet,
    )
    say(f"run: {shown(run.path)}", unless=quiet)
    if wait:
        _wait(run, slurm, job_id, show=not (quiet or json))
        conclude(run, json=json, quiet=quiet)
    elif json:
        print_json({"run": str(run.path), "job": job_id, "workers": job.workers})
    else:
        say(f"next: paceline watch {shown(run.path)}", unless=quiet)


def reached_slurm(testbed: str | None, *, quiet: bool) -> "Slurm":
    """The testbed named, else this machine's Slurm, else the testbed `default` or the only one."""
    from paceline.schedulers.slurm_client import Slurm
    from paceline.specs import PacelineError
    from paceline.testbed import client

    def of_testbed(name: str) -> Slurm:
        return Slurm(
            prefix=tuple(client.command_prefix(name)),
            environment=client.environment(name),
            name=f"the testbed {name}",
            shares_files=True,
        )

    if testbed is not None:
        return of_testbed(testbed)
    own = Slurm()
    try:
        own.ping()
    except PacelineError:
        up = client.running()
        if not up:
            raise
        if len(up) > 1 and "default" not in up:
            raise PacelineError(
                f"this machine has no Slurm of its own, and {len(up)} testbeds are up",
                fix=f"choose one with --testbed: {', '.join(up)}",
            ) from None
        name = "default" if "default" in up else up[0]
        say(f"using the testbed {name}: this machine has no Slurm of its own", unless=quiet)
        return of_testbed(name)
    return own


def _wait(run: "Run", slurm: "Slurm", job_id: int, *, show: bool) -> None:
    """Follow the run until Slurm has done with the job."""
    import time

    from rich.console import Console

    from paceline.report import watch

    over = until_over(run, slurm, job_id)
    if show:
        watch(run, Console(stderr=True), until=over)
    while not over():
        time.sleep(0.2)


def until_over(run: "Run", slurm: "Slurm", job_id: int) -> Callable[[], bool]:
    """A function that says whether the run's job is over, for whoever waits."""
    import time

    from paceline.report import RunReader
    from paceline.schedulers import slurm as launcher
    from paceline.schedulers.slurm_client import ENDED_STATES

    reader = RunReader(run)
    last_asked = 0.0

    def over() -> bool:
        nonlocal last_asked
        found = reader.refresh()
        if found.ended is not None and found.over:
            return True
        if time.monotonic() - last_asked < 2.0:  # the controller serves everybody
            return False
        last_asked = time.monotonic()
        state = slurm.job_state(job_id)
        if state is not None and state not in ENDED_STATES:
            return False
        found = reader.refresh()
        if found.ended is None or not found.over:
            generation = max(found.generation, run.job.first_generation)
            launcher.note_cut_off(run, generation, state)
        return True

    return over


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command()(submit)
