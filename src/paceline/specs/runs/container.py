"""The container image in which a job's workers run."""

from paceline.specs.base import Spec


class Container(Spec):
    """An image, the runtime that starts it, and what it sees of the node."""

    image: str
    """As the runtime names it: a file, or a name in a registry."""
    runtime: str | None = None
    """Name of the container runtime, such as apptainer; None: the cluster's own."""
    binds: tuple[str, ...] = ()
    """Additional folders to see inside, `FOLDER` or `FOLDER:INSIDE`."""
    options: tuple[str, ...] = ()
    """Further options of the runtime, as its own command line has them."""
    python: str = "python3"
    """Python interpreter inside the image."""
