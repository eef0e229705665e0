"""A page for each command: its usage, examples, arguments and options, as `--help` has them."""

import inspect
import re
from typing import Any

import typer.main

from paceline.cli.app import app
from scripts.reference.fields import cell

_EXAMPLE = re.compile(r"^(\w[\w ]*): +(paceline .+)$", re.MULTILINE)

_RANGE = re.compile(r"(?<=\[)(\d+)<=x<=(\d+)(?=\])")
_LIMIT = re.compile(r"\bx>=(\S+?)(?=\])")
_VALUES = {
    **{"int range": "N", "int": "N", "float range": "X", "float": "X", "str": "TEXT"},
    **{"path": "PATH", "file": "FILE"},
}
"""Words for the kinds of values of options without a word of their own."""

Command = Any
"""Typer has a copy of click, whose classes have no public names."""


def commands() -> dict[str, Command]:
    """Return the commands by name, in the order of `paceline --help`."""
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def pages() -> dict[str, str]:
    """Return the pages of all commands by path, and the page that lists them."""
    rows = [
        f"| [`paceline {name}`](commands/{name}.md) | {_summary(command)} |"
        for name, command in commands().items()
    ]
    top = [
        *("# Commands", ""),
        "`TRAIN` is `train.py` or `train.py:function`. Every command has `--help`, `--json`"
        " ([its forms](json.md)) and `--quiet`. [Site files](files.md#site-file) set the defaults"
        " of options.",
        *("", "| command | purpose |", "|---|---|", *rows, ""),
        *("## Completion", ""),
        "Bash, zsh and fish complete commands, options and values of options:",
        *("", "```bash", "paceline --install-completion", "```", ""),
        "It writes a file for the shell that you use; `--show-completion` prints it instead. Open a"
        " new shell to use it.",
    ]
    found = {"commands.md": "\n".join([*top, ""])}
    for name, command in commands().items():
        found[f"commands/{name}.md"] = _page(name, command)
    return found


def _page(name: str, command: Command) -> str:
    inside = getattr(command, "commands", None)
    if not inside:
        return "\n".join([f"# paceline {name}", "", *_body(f"paceline {name}", command)])
    lines = [f"# paceline {name}", "", cell(command.help or ""), ""]
    for verb, each in inside.items():
        lines += [f"## paceline {name} {verb}", "", *_body(f"paceline {name} {verb}", each)]
    return "\n".join(lines)


def _body(path: str, command: Command) -> list[str]:
    context = typer.Context(command, info_name=path)
    help_text = inspect.cleandoc(command.help or "")
    examples = _EXAMPLE.findall(help_text)
    prose = _EXAMPLE.sub("", help_text).strip()
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    usage = re.sub(r"\{([A-Z]+)\}", r"\1", usage)
    lines = [re.sub(r"\n{2,}", "\n\n", prose), "", "```text", usage, "```", ""]
    if examples:
        lines += ["```bash"]
        for title, line in examples:
            lines += [*([] if title == "Example" else [f"# {title}"]), line]
        lines += ["```", ""]
    for title, rows in _groups(command, context).items():
        lines += [f"**{title}**", "", "| name | meaning |", "|---|---|", *rows, ""]
    return lines


def _groups(command: Command, context: typer.Context) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if parameter.name == "help" or record is None:
            continue
        names, meaning = record
        title = parameter.rich_help_panel or "Options"
        if parameter.param_type_name == "argument":
            title, names = "Arguments", names.split(" <")[0]
            meaning = meaning.removesuffix("  [required]")
        for kind, word in _VALUES.items():
            names = names.replace(f"<{kind}>", word)
        meaning = _LIMIT.sub(r"≥ \1", _RANGE.sub(r"\1 to \2", meaning))
        groups.setdefault(title, []).append(f"| {cell(f'`{names}`')} | {cell(meaning)} |")
    return groups


def _summary(command: Command) -> str:
    return cell(inspect.cleandoc(command.help or "").split("\n\n")[0])
