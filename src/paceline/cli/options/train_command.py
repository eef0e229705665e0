"""A command that runs the user's script, with the script's own arguments after `--`."""

import typer

from paceline.cli.options.grouped_command import SiteCommand

_KEY = "paceline.script_arguments"


class TrainCommand(SiteCommand):
    """A command whose words after `--` are the `sys.argv` of the user's script."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Set the words after the first `--` aside, and parse the others."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_KEY] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the parts of the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]


def script_arguments(context: typer.Context) -> tuple[str, ...]:
    """Return the arguments of the user's script."""
    given: tuple[str, ...] = context.meta.get(_KEY, ())
    return given
