"""The parallelism degrees that divide devices, a model and its batch."""

from collections.abc import Sequence

from paceline.specs.measurements.profile import Profile

MOST_TENSOR = 16
"""Largest tensor-parallel degree: no published run exceeds two nodes of eight."""


def divisors(number: int) -> list[int]:
    """Return all divisors, in ascending order."""
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def divisors_up_to(most: int, number: int) -> list[int]:
    """Return the divisors of `number` that are at most `most`."""
    return [each for each in range(1, min(most, number) + 1) if number % each == 0]


def tensor_degrees(profile: Profile) -> list[int]:
    """Return the tensor-parallel degrees that divide all sliced dimensions of a block."""
    sizes = [
        {"columns": each.columns, "inner": each.inner, "repeats": each.repeats}[each.sliced]
        for each in profile.block.matmuls
        if each.sliced != "whole"
    ]
    if not sizes:
        return [1]
    return [each for each in range(1, MOST_TENSOR + 1) if not any(size % each for size in sizes)]


def batch_units(profile: Profile, devices: int) -> list[int]:
    """Return the numbers of which a batch must be a multiple on that many devices: any of them.

    A pipeline processes whole rounds of micro-batches, so its stages divide the batch as
    data-parallel ranks do; only tensor-parallel workers share a sample.
    """
    return [devices // each for each in tensor_degrees(profile) if devices % each == 0]


def batches_near(batch: int, units: Sequence[int]) -> list[int]:
    """Return the largest multiple of a unit below `batch`, if any, and the smallest above it."""
    below = max(batch // each * each for each in units)
    above = min(-(-batch // each) * each for each in units)
    return [each for each in (below, above) if each > 0]


def dividing_nodes(profile: Profile, batch: int, devices_per_node: int) -> list[int]:
    """Return the numbers of nodes over which a batch can be divided, in ascending order."""
    counts = {
        data * tensor // devices_per_node
        for data in divisors(batch)
        for tensor in tensor_degrees(profile)
        if data * tensor % devices_per_node == 0
    }
    return sorted(counts)
