"""Intel GPUs. Not run on hardware yet."""

from paceline.comm.devices._accelerator import Accelerator

DEVICE = Accelerator("xpu")
