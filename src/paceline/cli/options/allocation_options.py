"""Options that name what a site asks of a job: account, quality of service and the like.

`submit`, `resume`, `probe` and `study` share them.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from paceline.specs import Allocation

_PANEL = "What the site asks for"


def _text(name: str, metavar: str, help_text: str) -> object:
    return typer.Option(f"--{name}", metavar=metavar, help=help_text, rich_help_panel=_PANEL)


Account = Annotated[str | None, _text("account", "NAME", "The project that pays.")]
Qos = Annotated[str | None, _text("qos", "NAME", "Quality of service.")]
Constraint = Annotated[
    str | None, _text("constraint", "FEATURES", "Features of the nodes, such as 'a100&nvlink'.")
]
Reservation = Annotated[str | None, _text("reservation", "NAME", "Reservation to run in.")]
Gres = Annotated[
    str | None, _text("gres", "LIST", "Generic resources per node, such as gpu:a100:4.")
]
Licenses = Annotated[str | None, _text("licenses", "LIST", "Licenses, such as foo:4.")]
Dependency = Annotated[
    str | None, _text("dependency", "LIST", "Start after other jobs, such as afterok:123.")
]
Begin = Annotated[
    str | None, _text("begin", "TIME", "Start no earlier, such as 20:00 or now+1hour.")
]
Mail = Annotated[
    str | None, _text("mail", "ADDRESS", "Tell this address of start, end, failure and requeue.")
]
Exclusive = Annotated[
    bool,
    typer.Option("--exclusive", help="Share the nodes with no other job.", rich_help_panel=_PANEL),
]
SchedulerOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--scheduler-option",
        metavar="OPTION",
        help='Any other option of the scheduler, such as "--comment=trial 3" (repeatable).',
        rich_help_panel=_PANEL,
    ),
]


def given_allocation(context: typer.Context) -> "Allocation":
    """Return what the user or a site file named; the command's parameters have the fields'
    names."""
    from paceline.specs import Allocation

    given = context.params | {"options": tuple(context.params["scheduler_option"] or ())}
    return Allocation(**{name: given[name] for name in Allocation.model_fields})


def typed_allocation(context: typer.Context) -> dict[str, Any]:
    """Return the fields of an allocation, and `partition`, that the command line has itself."""
    found = given_allocation(context).model_dump() | {"partition": context.params["partition"]}

    def is_typed(field: str) -> bool:
        source = context.get_parameter_source("scheduler_option" if field == "options" else field)
        return source is not None and source.name == "COMMANDLINE"

    return {field: value for field, value in found.items() if is_typed(field)}


def refuse_on_this_machine(context: typer.Context, *, fix: str) -> None:
    """Refuse options for a job of a cluster where none is submitted; a site file may set them."""
    from paceline.specs import PacelineError

    for field in typed_allocation(context):
        name = "scheduler-option" if field == "options" else field
        raise PacelineError(f"--{name} is for a job of a cluster, but none is submitted", fix=fix)
