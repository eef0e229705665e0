"""Random numbers of a step, such as dropout draws them."""

import hashlib

import torch


def draw_anew(device: torch.device, seed: int, step: int, whose: int) -> None:
    """Make random numbers a function of the step and of whose they are, so that a run which is
    resumed draws what it would have drawn."""
    digest = hashlib.blake2b(f"{seed}/{step}/{whose}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    # torch.manual_seed would ask for every kind of device and take a hundred times as long.
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device.type).manual_seed(number)
