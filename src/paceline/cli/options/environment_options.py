"""Options for the shell environment of a job on its nodes."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from paceline.specs import JobEnvironment

_PANEL = "Environment on the nodes"


def _several(name: str, metavar: str, help_text: str) -> Any:
    return typer.Option(f"--{name}", metavar=metavar, help=help_text, rich_help_panel=_PANEL)


Setup = Annotated[
    list[str] | None,
    _several("setup", "LINE", 'Shell line before the workers, as "module load cuda" (repeatable).'),
]
Teardown = Annotated[
    list[str] | None,
    _several("teardown", "LINE", "Shell line after the workers have ended (repeatable)."),
]
Variables = Annotated[
    list[str] | None, _several("env", "NAME=VALUE", "Variable of the workers (repeatable).")
]
KeptVariables = Annotated[
    list[str] | None,
    _several(
        "keep-env",
        "NAME",
        "Pass only such variables of this shell to the job (repeatable; default: the scheduler's).",
    ),
]


def given_environment(context: typer.Context) -> "JobEnvironment":
    """Return the environment that the command's options describe."""
    from paceline.specs import JobEnvironment

    given = {name: tuple(context.params[name] or ()) for name in _FIELDS}
    pairs = (each.partition("=") for each in given["env"])
    return JobEnvironment(
        setup=given["setup"],
        teardown=given["teardown"],
        keep=given["keep_env"],
        variables={name: value for name, _, value in pairs},
    )


_FIELDS = ("setup", "teardown", "env", "keep_env")
