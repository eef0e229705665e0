"""Options of `submit` for containers."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from paceline.specs import Container

_PANEL = "Container"

Image = Annotated[
    str | None,
    typer.Option(
        "--container",
        metavar="IMAGE",
        help="Run the workers in this image, which has Paceline installed.",
        rich_help_panel=_PANEL,
    ),
]
Runtime = Annotated[
    str | None,
    typer.Option(
        "--container-runtime",
        metavar="NAME",
        help="apptainer, enroot, podman or podman_hpc (default: the one on this machine).",
        rich_help_panel=_PANEL,
    ),
]
Binds = Annotated[
    list[str] | None,
    typer.Option(
        "--container-bind",
        metavar="FOLDER[:INSIDE]",
        help="Folder to see inside, besides the run's, the training's and the current one;"
        " repeatable.",
        rich_help_panel=_PANEL,
    ),
]
RuntimeOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--container-option",
        metavar="OPTION",
        help="Another option of the runtime, such as --rocm; repeatable.",
        rich_help_panel=_PANEL,
    ),
]


def given_container(
    image: str | None, runtime: str | None, binds: list[str] | None, options: list[str] | None
) -> "Container | None":
    """Return the container that the options describe; refuse options without an image."""
    from paceline.schedulers.container_runtime import check_container
    from paceline.specs import Container, PacelineError

    if image is None:
        if runtime or binds or options:
            raise PacelineError(
                "options of a container were given without an image", fix="add --container IMAGE"
            )
        return None
    container = Container(
        image=image,
        runtime=runtime,
        binds=tuple(binds or ()),
        options=tuple(options or ()),
    )
    check_container(container)
    return container
