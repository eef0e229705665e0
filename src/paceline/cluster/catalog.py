"""The catalog of devices and links, and cluster files that refer to it."""

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster, Device, Link


def device(name: str) -> Device:
    """Return the device of that name."""
    return Device.model_validate({"name": name, **_entry("devices", name)})


def link(name: str) -> Link:
    """Return the link of that name."""
    return Link.model_validate({"name": name, **_entry("links", name)})


def names(kind: str) -> list[str]:
    """Return the names of all `devices` or all `links`."""
    return list(_catalog()[kind])


def read_cluster(path: Path) -> Cluster:
    """Read a cluster from a TOML file; devices and links may be names from the catalog:

    nodes = 16
    devices_per_node = 8
    device = "h100-80gb"
    inside = "nvlink4"
    between = "infiniband-ndr"
    """
    written = Cluster.read_toml(path)
    if isinstance(named := written.get("device"), str):
        written["device"] = device(named)
    for each in written.get("mixed", ()):
        if isinstance(named := each.get("device"), str):
            each["device"] = device(named)
    for key in ("inside", "between"):
        if isinstance(named := written.get(key), str):
            written[key] = link(named)
    return Cluster.checked(written, path)


def usual_cluster(name: str, nodes: int) -> Cluster:
    """Return nodes with a device of the catalog, in its usual number and with its usual links."""
    chosen, usual = device(name), _catalog()["usual"][name]
    return Cluster(
        nodes=nodes,
        devices_per_node=usual["devices_per_node"],
        device=chosen,
        inside=link(usual["inside"]),
        between=link(usual["between"]),
    )


@cache
def _catalog() -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads(files("paceline.cluster").joinpath("catalog.toml").read_text())


def _entry(kind: str, name: str) -> dict[str, Any]:
    entries = _catalog()[kind]
    if name not in entries:
        raise PacelineError(
            f"the catalog has no {kind[:-1]} {name!r}",
            fix=f"use one of {', '.join(entries)}, or write its figures into the cluster file",
        )
    return entries[name]
