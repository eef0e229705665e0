"""`paceline testbed`: run a small cluster with Slurm on this machine."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import Json, Quiet, print_json, say, waiting
from paceline.cli.options.grouped_command import GroupedCommand

if TYPE_CHECKING:
    from paceline.testbed.status import NodeStatus, Status

testbed = typer.Typer(
    name="testbed",
    help="Run a small cluster with Slurm on this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Option("--name", help="Name of the testbed.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="A node: n1, n2, …")]


@testbed.command(cls=GroupedCommand)
def up(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Number of nodes.")] = 2,
    link: Annotated[
        str | None,
        typer.Option(
            "--link", metavar="RATE", help="Bandwidth of each node's link, such as 1gbit."
        ),
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", help="One-way delay of each link, such as 20ms.")
    ] = None,
    accounting: Annotated[
        bool, typer.Option("--accounting", help="Give Slurm accounts and QOS with limits.")
    ] = False,
    name: Name = "default",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start a testbed.

    Example:  paceline testbed up --nodes 4 --link 1gbit
    """
    import time

    from paceline.testbed import client
    from paceline.testbed.testbed_spec import TestbedSpec

    begin = time.monotonic()
    spec = TestbedSpec(name=name, nodes=nodes, link=link, delay=delay, accounting=accounting)
    found = client.up(spec, on_progress=lambda text: say(text, unless=quiet or json))
    if json:
        print_json(found.to_dict() | {"seconds": time.monotonic() - begin}, "testbed.up")
        return
    say(
        f"testbed {name} is up after {time.monotonic() - begin:.1f} s: {nodes} nodes\n"
        f"next: paceline submit train.py --nodes {nodes} --testbed {name}",
        unless=quiet,
    )


@testbed.command(cls=GroupedCommand)
def status(name: Name = "default", json: Json = False, quiet: Quiet = False) -> None:
    """Show the state of the nodes, their links and Slurm.

    Example:  paceline testbed status
    """
    from paceline.testbed import client

    found = client.status(name)
    if json:
        print_json(found.to_dict(), "testbed.status")
    elif not quiet:
        _print_table(found)


@testbed.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def exec(
    context: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node: n1, n2, … or head.")],
    name: Name = "default",
) -> None:
    """Run a command on a node, or on the head, which has Slurm's commands.

    Example:  paceline testbed exec head -- srun -N4 hostname
    """
    import os

    from paceline.specs import PacelineError
    from paceline.testbed import client

    command = [word for index, word in enumerate(context.args) if index or word != "--"]
    if not command:
        raise PacelineError(
            "there is no command to run", fix=f"paceline testbed exec {node} -- COMMAND"
        )
    words = [*client.command_prefix(name, node), *command]
    os.execvpe(words[0], words, os.environ | client.environment(name))  # noqa: S606 -- no shell


@testbed.command(cls=GroupedCommand)
def link(
    node: NodeName,
    rate: Annotated[str | None, typer.Option("--rate", help="Bandwidth, such as 100mbit.")] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", help="One-way delay, such as 20ms (0ms: none).")
    ] = None,
    loss: Annotated[
        str | None, typer.Option("--loss", help="Share of frames to drop, such as 2% (0: none).")
    ] = None,
    down: Annotated[bool, typer.Option("--down", help="Cut the link.")] = False,
    up: Annotated[bool, typer.Option("--up", help="Restore the link.")] = False,
    name: Name = "default",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Change a node's link while jobs run.

    Example:  paceline testbed link n2 --rate 100mbit
    """
    from paceline.testbed import client

    client.link(name, node, rate=rate, delay=delay, loss=loss, down=down, up=up)
    _say_node(client.status(name), node, json=json, quiet=quiet)


@testbed.command(cls=GroupedCommand)
def stop(node: NodeName, name: Name = "default", json: Json = False, quiet: Quiet = False) -> None:
    """Cut a node's power: all of its processes die at once.

    Example:  paceline testbed stop n3
    """
    from paceline.testbed import client

    client.stop(name, node)
    _say_node(client.status(name), node, json=json, quiet=quiet)


@testbed.command(cls=GroupedCommand)
def start(node: NodeName, name: Name = "default", json: Json = False, quiet: Quiet = False) -> None:
    """Restore a node's power, and wait until Slurm has it back.

    Example:  paceline testbed start n3
    """
    from paceline.testbed import client

    with waiting(f"Slurm to use {node} again", unless=quiet or json):
        client.start(name, node)
    _say_node(client.status(name), node, json=json, quiet=quiet)


@testbed.command(cls=GroupedCommand)
def down(name: Name = "default", json: Json = False, quiet: Quiet = False) -> None:
    """Stop a testbed and remove all of it.

    Example:  paceline testbed down
    """
    from paceline.testbed import client

    with waiting(f"the processes of the testbed {name} to end", unless=quiet or json):
        client.down(name)
    if json:
        print_json({"name": name, "state": "down"}, "testbed.down")
    else:
        say(f"testbed {name} is down", unless=quiet)


def _print_table(found: "Status") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"testbed {found.name} (head {found.head_address})", title_justify="left")
    for column in ("node", "address", "power", "Slurm", "link", "rate", "delay", "loss"):
        table.add_column(column)
    for node in found.nodes:
        table.add_row(
            node.name,
            node.address,
            node.state,
            node.slurm_state,
            node.link,
            _rate(node),
            f"{node.delay_seconds * 1000:g} ms" if node.delay_seconds else "-",
            f"{100 * node.loss:g} %" if node.loss else "-",
        )
    Console().print(table)


def _say_node(found: "Status", name: str, *, json: bool, quiet: bool) -> None:
    node = next(each for each in found.nodes if each.name == name)
    if json:
        print_json(dataclasses.asdict(node), "testbed.node")
    else:
        delay = f", {node.delay_seconds * 1000:g} ms each way" if node.delay_seconds else ""
        loss = f", {100 * node.loss:g} % of its frames get lost" if node.loss else ""
        said = f"{name}: power {node.state}, link {node.link}, {_rate(node)}{delay}{loss}"
        say(said, unless=quiet)


def _rate(node: "NodeStatus") -> str:
    bits = node.rate_bits_per_second
    return f"{bits / 1e6:g} Mbit/s" if bits else "unshaped"


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(testbed)
