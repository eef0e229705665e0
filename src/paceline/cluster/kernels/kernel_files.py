"""Tables of measured kernels: the file beside a cluster's, and a cache of the user's.

Both are JSON. The cache has one file per kind of device, versions and neighbors, so that a second
probe need not measure again.
"""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from paceline.specs.base import problem_of
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.kernels import KernelSource, KernelTable
from paceline.specs.owned_files import make_folder, read_bounded, write_owned

MOST_BYTES = 1 << 20
"""Maximum size of a table: thirty bytes per point of at most a few thousand."""


def kernel_file(cluster_file: Path, device: str) -> Path:
    """Return the file of a device's kernels, beside the cluster's."""
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return cluster_file.with_name(f"kernels-{name[:80]}.json")


def write_kernels(path: Path, table: KernelTable) -> None:
    """Write a table."""
    path.write_text(table.model_dump_json())


def with_kernels(cluster: Cluster, cluster_file: Path) -> Cluster:
    """Return the cluster with its device's measured kernels, if their file lies beside its own.

    Nodes of several kinds have none: a plan would compare measured with computed kernels.
    """
    path = kernel_file(cluster_file, cluster.device.name)
    if cluster.mixed or not path.exists():
        return cluster
    table = _read(path)
    if table.source.device != cluster.device.name:
        return cluster
    return cluster.model_copy(update={"kernels": table})


def cached(source: KernelSource) -> KernelTable | None:
    """Return the cached table of a source; None if there is none that can be read and that only
    this user can write."""
    try:
        contents = read_bounded(_cache_folder() / _key(source), MOST_BYTES, own=True)
        found = KernelTable.model_validate_json(contents)
    except (OSError, ValidationError, PacelineError):
        return None
    return found if found.source == source else None


def keep(table: KernelTable) -> None:
    """Write a table to the cache; where that is not possible, the next probe measures again."""
    folder = _cache_folder()
    with suppress(OSError, PacelineError):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_folder(folder, share=False, exist_ok=True)
        write_owned(folder / _key(table.source), table.model_dump_json(), share=False)


def _read(path: Path) -> KernelTable:
    try:
        return KernelTable.model_validate_json(read_bounded(path, MOST_BYTES))
    except OSError as error:
        raise PacelineError(
            f"{path} cannot be read: {error.strerror}",
            fix="let its owner make it readable for you; without it, products are computed",
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise PacelineError(
            f"{path} is not a valid table of kernels: {where}: {problem_of(first)}",
            fix="delete it, and measure again: paceline probe",
        ) from None


def _cache_folder() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "paceline" / "kernels"


def _key(source: KernelSource) -> str:
    return f"{hashlib.sha256(source.model_dump_json().encode()).hexdigest()[:32]}.json"
