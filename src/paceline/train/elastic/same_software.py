"""The check that all nodes of a run have the same software."""

import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping

from paceline.observe.versions import version_of
from paceline.specs import PacelineError

COMPARED = ("paceline", "torch")
_MOST_NODES = 3

Software = Mapping[str, str]
"""Versions by the name of a package, or of Python."""


def software() -> Software:
    """Return the versions on this node that must be the same on all nodes of a run.

    Builds of one version for different devices, and patches of one Python, work together.
    """
    packages = {name: (version_of(name) or "none").partition("+")[0] for name in COMPARED}
    return {"Python": ".".join(platform.python_version_tuple()[:2]), **packages}


def refuse_different(nodes: Iterable[tuple[str, Software]]) -> None:
    """Raise an error in one line if two nodes have different software, by node."""
    having: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node, found in nodes:
        for name, version in found.items():
            having[name][version].append(node)
    different = [
        " and ".join(f"{name} {version} on {_some(names)}" for version, names in versions.items())
        for name, versions in having.items()
        if len(versions) > 1
    ]
    if different:
        raise PacelineError(
            f"the nodes have different software: {'; '.join(different)}",
            fix="use one environment on the file system that all nodes share, or the same image"
            " on all nodes; then `paceline resume`",
        )


def _some(nodes: list[str]) -> str:
    more = len(nodes) - _MOST_NODES
    return ", ".join(nodes[:_MOST_NODES]) + (f" and {more} more" if more > 0 else "")
