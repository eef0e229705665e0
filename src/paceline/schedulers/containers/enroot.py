"""enroot by pyxis, a plugin of Slurm whose launcher then starts the containers itself.

Images are squashfs files, or names such as `registry.example#team/torch:25.01`. The site's enroot
adds the GPUs of the task.
"""

from typing import ClassVar

from paceline.schedulers.container_runtime import ContainerRuntime, TaskContainer


class _Enroot(ContainerRuntime):
    name: ClassVar[str] = "enroot"
    program: ClassVar[str] = "enroot"

    def launcher_options(self, task: TaskContainer) -> list[str]:
        return [
            f"--container-image={task.container.image}",
            f"--container-mounts={','.join(task.folders)}",
            f"--container-workdir={task.folder}",
            "--no-container-mount-home",
            *task.container.options,
        ]

    def command(self, task: TaskContainer) -> list[str]:
        del task
        # The node's environment is passed, in which Python's own variables mean other packages.
        return ["env", "-u", "PYTHONPATH", "PYTHONNOUSERSITE=1"]


RUNTIME = _Enroot()
