"""podman-hpc: Podman for users of a cluster, with images on its shared file system."""

from typing import ClassVar

from paceline.schedulers.containers.podman import Podman


class _PodmanHpc(Podman):
    name: ClassVar[str] = "podman_hpc"
    program: ClassVar[str] = "podman-hpc"
    devices: ClassVar[str] = "--gpu"


RUNTIME = _PodmanHpc()
