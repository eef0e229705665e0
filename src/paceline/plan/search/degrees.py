"""The parallelism degrees that divide devices, a model and its batch."""

from collections.abc import Sequence

from paceline.specs.measurements.profile import Profile

MOST_TENSOR = 16
"""Largest tensor-parallel degree: no published run exceeds two nodes of eight."""

LEAST_TOKENS = 2048
"""Fewest tokens of a sample that a context-parallel worker takes in a search: with fewer, keys and
values take longer than attention hides."""


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


def context_degrees(profile: Profile) -> list[int]:
    """Return the context-parallel degrees: powers of two that leave each worker enough tokens in
    two equal parts, one from the head and one from the tail of a sample, as Megatron balances a
    causal mask."""
    if not profile.block.context_bytes:
        return [1]
    tokens = profile.block.matmuls[0].rows
    most = max(tokens // LEAST_TOKENS, 1)
    return [1, *(2**n for n in range(1, most.bit_length()) if tokens % 2 ** (n + 1) == 0)]


def expert_degrees(profile: Profile) -> list[int]:
    """Return the expert-parallel degrees: whole experts on every worker."""
    experts = [each.repeats for each in profile.block.matmuls if each.routed]
    return divisors(experts[0]) if experts else [1]


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
