"""`paceline help`: explain an error, or a topic of the reference, in the terminal."""

from collections.abc import Collection
from typing import Annotated, Any

import typer

from paceline.cli.console import Json, Quiet, print_json, say
from paceline.cli.options.grouped_command import GroupedCommand


def _complete(incomplete: str) -> list[str]:
    from paceline.cli.help.topics import topics

    return [name for name in topics() if name.startswith(incomplete)]


def show_help(
    context: typer.Context,
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            autocompletion=_complete,
            help="Topic that an error names, or exit-codes, environment, json (default: list all).",
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="NAME",
            help="Print the JSON schema of this form of --json, such as plan or run.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Explain an error or a topic; the same texts as in the reference.

    Example:  paceline help batch
    """
    from difflib import get_close_matches

    from paceline.cli.help.topics import published_docs, topics
    from paceline.specs import PacelineError

    if schema is not None and topic is not None:
        raise PacelineError(
            f"a topic ({topic}) and --schema cannot be combined",
            fix=f"try `paceline help {topic}` or `paceline help --schema {schema}`",
        )
    if schema is not None:
        _show_schema(schema)
        return
    known = topics()
    if topic is None:
        if json:
            titles = [{"topic": each.name, "title": each.title} for each in known.values()]
            print_json({"topics": titles}, "help.topics")
            return
        width = max(map(len, known))
        for each in known.values():
            print(f"{each.name:{width}}  {each.title}")
        say("next: paceline help TOPIC; paceline COMMAND --help for a command", unless=quiet)
        return
    if topic not in known and topic in _commands(context):
        raise PacelineError(
            f"{topic} is a command, not a topic", fix=f"try `paceline {topic} --help`"
        )
    if topic not in known:
        near = get_close_matches(topic, known) or ["options"]
        raise PacelineError(
            f"there is no topic {topic!r}",
            fix=f"try `paceline help {near[0]}`; `paceline help` lists all topics",
        )
    found = known[topic]
    if json:
        print_json({"topic": found.name, "title": found.title, "text": found.text}, "help")
    else:
        print(found.for_terminal(published_docs()))


def _commands(context: typer.Context) -> Collection[str]:
    """Return the names of all commands."""
    assert context.parent is not None
    commands: dict[str, Any] = context.parent.command.commands  # type: ignore[attr-defined]
    return commands.keys()


def _show_schema(name: str) -> None:
    import json

    from paceline.cli.outputs.versions import VERSIONS
    from paceline.specs import PacelineError

    if name not in VERSIONS:
        raise PacelineError(
            f"there is no form {name!r} of --json", fix=f"use one of: {', '.join(VERSIONS)}"
        )
    from paceline.cli.outputs.schemas import json_schema

    print(json.dumps(json_schema(name), indent=2))


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command("help", cls=GroupedCommand)(show_help)
