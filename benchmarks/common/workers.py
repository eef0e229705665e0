"""Run a function on real workers, and join their process groups inside it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.comm.device_kind import device_kind
from paceline.comm.groups import Groups
from paceline.schedulers.task_placement import placement
from paceline.specs import Faults, Layout, Run
from paceline.train.elastic.joined_groups import joined
from ranks import new_run, run_ranks

LIMIT_SECONDS = 1800.0


def on_workers(
    function: Any, workers: int, *arguments: Any, layout: Layout | None = None
) -> list[Any]:
    """Return what `function(*arguments, run_path)` returns on each worker; replicas by default."""
    with tempfile.TemporaryDirectory() as folder:
        # A busy machine must not make a worker count as lost: the bare loops cannot regroup.
        run = new_run(Path(folder), workers, layout, faults=Faults(lease_seconds=60.0))
        given = (*arguments, str(run.path))
        return run_ranks(function, workers, Path(folder), *given, run=run, seconds=LIMIT_SECONDS)


@contextmanager
def process_groups(run_path: str) -> Iterator[Groups]:
    """Join the process groups of this worker."""
    here = placement(0)
    with joined(Run(Path(run_path)), here, device_kind().bind(here), None) as groups:
        yield groups
