"""A kind of device: the CPU under another name."""

import torch

from paceline.comm.devices.cpu import Cpu


class BorrowedCpu(Cpu):
    """The CPU, with a name that shows that this kind was chosen."""

    def title(self, device: torch.device, cores: int | None = None) -> str:
        """Return the CPU's name, marked."""
        return f"borrowed {super().title(device, cores)}"


DEVICE = BorrowedCpu()
