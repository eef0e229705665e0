"""Podman, with or without root."""

from typing import ClassVar

from paceline.schedulers.container_runtime import ContainerRuntime, TaskContainer


class Podman(ContainerRuntime):
    """Podman, and wrappers of it that have the same options."""

    name: ClassVar[str] = "podman"
    program: ClassVar[str] = "podman"
    devices: ClassVar[str] = "--device=nvidia.com/gpu=all"
    """What shows the GPUs of a node: here by the Container Device Interface."""

    def command(self, task: TaskContainer) -> list[str]:
        """Return `podman run` with the node's network, processes and shared memory."""
        return [
            *(self.program, "run", "--rm", "--network=host", "--pid=host", "--ipc=host"),
            *("--uts=host", "--security-opt=label=disable", "--entrypoint="),
            *(f"--env={name}" for name in task.variables),
            *([self.devices] if task.has_gpus else []),
            *(f"--volume={folder}" for folder in task.folders),
            f"--workdir={task.folder}",
            *task.container.options,
            task.container.image,
        ]


RUNTIME = Podman()
