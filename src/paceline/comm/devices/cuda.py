"""NVIDIA GPUs, and AMD's under ROCm, which torch calls cuda. Not run on hardware yet."""

import torch.distributed as dist

from paceline.comm.devices._accelerator import Accelerator
from paceline.comm.torch_internals import abort_process_groups


class Cuda(Accelerator):
    """GPUs with NCCL or RCCL."""

    def abort(self) -> None:
        """Abort NCCL's collectives."""
        if dist.is_initialized() and dist.get_backend() == "nccl":
            abort_process_groups()


DEVICE = Cuda("cuda")
