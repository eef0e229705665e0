"""A command whose `--help` shows its options in groups, without loading rich."""

from typing import Any

import typer
from typer.core import TyperCommand


class GroupedCommand(TyperCommand):
    """A command that lists its options under the titles given as `rich_help_panel`."""

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write one section per group, in order of first appearance; `--help` ends the last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        title = "Options"
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                title = "Arguments"
            elif parameter.name != "help":
                title = getattr(parameter, "rich_help_panel", None) or "Options"
            groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)
