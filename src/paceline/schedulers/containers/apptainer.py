"""Apptainer, and Singularity, which has the same options."""

from typing import ClassVar

from paceline.schedulers.container_runtime import ContainerRuntime, TaskContainer


class _Apptainer(ContainerRuntime):
    name: ClassVar[str] = "apptainer"
    program: ClassVar[str] = "apptainer"

    def command(self, task: TaskContainer) -> list[str]:
        # It passes the node's environment, in which Python's own variables mean other packages.
        return [
            *("apptainer", "exec", "--no-home", "--env=PYTHONNOUSERSITE=1,PYTHONPATH="),
            *(["--nv"] if task.has_gpus else []),
            *(f"--bind={folder}" for folder in task.folders),
            f"--pwd={task.folder}",
            *task.container.options,
            task.container.image,
        ]


RUNTIME = _Apptainer()
