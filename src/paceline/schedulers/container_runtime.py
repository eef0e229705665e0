"""The protocol of a container runtime, and the registry of the runtimes that implement it.

The scheduler starts one container per task. Each uses the node's network, process numbers and
shared memory, so that ranks, rendezvous and device numbers are those outside. The batch script
itself runs outside, with the Paceline that submitted it.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from paceline.specs import Container, Job, PacelineError, Run
from paceline.specs.registry import Registry

VARIABLES = (
    *("PACELINE_", "PYTHONUNBUFFERED", "OMP_", "MKL_", "TORCH", "PYTORCH_"),
    *("NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_", "CUDA_", "ROCR_", "HIP_", "ZE_", "HF_", "WANDB_"),
)
"""Beginnings of the names of variables to pass to runtimes that start with an empty environment."""


@dataclass(frozen=True)
class TaskContainer:
    """What a runtime needs to know of a job to start its containers."""

    container: Container
    folder: Path
    """Current directory inside."""
    folders: tuple[str, ...]
    """What to see inside, as `FOLDER:INSIDE`."""
    variables: tuple[str, ...]
    """Variables to pass: names, or their beginnings with a star."""
    has_gpus: bool

    @classmethod
    def of(
        cls, container: Container, job: Job, run: Run, variables: tuple[str, ...]
    ) -> "TaskContainer":
        """Return the container of a job's tasks; `variables`: the scheduler's own."""
        return cls(
            container=container,
            folder=job.folder,
            folders=tuple(_folders(container, job, run)),
            variables=(
                *(f"{beginning}*" for beginning in (*VARIABLES, *variables)),
                *job.environment.variables,
            ),
            has_gpus=job.gpus_per_node > 0,
        )


class ContainerRuntime(ABC):
    """One kind of container runtime."""

    name: ClassVar[str]
    """Name for `--container-runtime`."""
    program: ClassVar[str]
    """The command that shows, on a login node, that the site has this runtime."""

    def launcher_options(self, task: "TaskContainer") -> list[str]:
        """Return options for the scheduler's launcher, if the runtime is a plugin of it."""
        del task
        return []

    @abstractmethod
    def command(self, task: "TaskContainer") -> list[str]:
        """Return the words before the command that runs inside, which begins with Python."""


RUNTIMES: Registry[ContainerRuntime] = Registry(
    "container runtime",
    group="paceline.containers",
    package="paceline.schedulers.containers",
    attribute="RUNTIME",
    kind=ContainerRuntime,  # type: ignore[type-abstract]
)
"""All container runtimes by name, built in or from other packages."""


def runtime_here() -> str:
    """Return the name of the runtime that this machine has."""
    found = [each.name for each in RUNTIMES if shutil.which(each.program)]
    if len(found) == 1:
        return found[0]
    here = f"has {' and '.join(found)}" if found else "has none of these"
    raise PacelineError(
        f"--container was given without --container-runtime, and this machine {here}",
        fix=f"add --container-runtime NAME: {', '.join(RUNTIMES.names)}",
    )


def _folders(container: Container, job: Job, run: Run) -> Iterator[str]:
    wanted = {run.path, job.folder}
    if job.train:
        wanted.add(job.train.parent)
    if run.plan_file.exists() and "://" not in run.checkpoint_place:
        wanted.add((job.folder / run.checkpoint_place).parent)
    for folder in sorted(wanted):
        if not any(parent in wanted for parent in folder.parents):
            yield f"{folder}:{folder}"
    for bind in container.binds:
        yield bind if ":" in bind else f"{bind}:{bind}"


def check_container(container: Container) -> None:
    """Refuse an unknown runtime, and folders that the options of runtimes cannot say."""
    if container.runtime is not None:
        RUNTIMES.get(container.runtime)
    for bind in container.binds:
        folder, _, _ = bind.partition(":")
        if not Path(folder).is_absolute() or "," in bind:
            raise PacelineError(
                f"--container-bind {bind} is not an absolute path without commas",
                fix="write --container-bind /data or --container-bind /scratch/ann:/data",
            )
