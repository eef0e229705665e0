"""Commands whose `--help` shows their options in groups, without loading rich."""

from typing import Any

import typer
from typer.core import TyperCommand

from paceline.cli.options.site_defaults import site_defaults


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


class SiteCommand(GroupedCommand):
    """A command of which site files give the defaults of the options."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse the arguments, with the site's defaults."""
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.default_map = defaults = site_defaults(ctx, given)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            name = str(error.param and error.param.name)
            if name in given or name not in defaults:
                raise
            from paceline.specs import PacelineError

            raise PacelineError(
                f"a site file sets {name} to {defaults[name]!r}: {error.message}",
                fix=f"mend it there; `paceline {ctx.info_name} --help` says what the option takes",
            ) from None
