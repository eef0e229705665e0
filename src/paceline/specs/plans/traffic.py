"""The communication of a synchronization mode, as the planner counts it."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.specs.measurements.dry_run import Transfer

NUMBER_BYTES = 4
"""Bytes of an uncompressed weight or gradient."""
BUCKET_BYTES = 25 << 20
FIRST_BUCKET_BYTES = 1 << 20
"""Size of the first bucket: small, so that communication begins early."""


@dataclass(frozen=True)
class ReplicatedPart:
    """The part of a model that a worker holds and `workers` replicas synchronize."""

    workers: int
    parameters: int
    bucket_bytes: int = BUCKET_BYTES
    shapes: Sequence[tuple[int, ...]] = ()
    """Shapes of the parameters; if empty, modes that depend on them assume some."""


@dataclass(frozen=True)
class Traffic:
    """Communication between the replicas of a worker's part of the model."""

    transfers: tuple[Transfer, ...]
    """Transfers of one round, in sequence, on a busiest worker."""
    busiest: int
    """Number of such workers; their transfers are all the traffic, since the others communicate
    only with them."""
    per_step: float
    """Rounds per step."""
    overlapped_steps: int
    """Steps that a round may overlap, apart from the backward of its own step."""
    device_bytes: float
    """Bytes that a worker reads and writes in its memory per round: encoding, decoding, adding."""
    launches: float = 0.0
    """Kernel launches for encoding and decoding. On accelerators, they may take the host longer
    than the bytes take the device."""
    crossing: float = 1.0
    """Fraction of the transfers' total time that remains when transfers of several workers cross
    on a full-duplex link."""

    @property
    def bytes_per_step(self) -> float:
        """Bytes per step that a busiest worker sends, or receives from workers that are not."""
        return self.per_step * sum(_passed(each) for each in self.transfers)


def copied(elements: int, times: float) -> float:
    """Return the bytes read and written to copy `elements` numbers `times` times."""
    return 2 * NUMBER_BYTES * elements * times


def transfer(operation: str, workers: int, nbytes: int, count: int = 1) -> Transfer:
    """Return `count` transfers of `nbytes` each between `workers` replicas."""
    return Transfer(
        operation=operation,
        dimension="replicas",
        workers=workers,
        inside_node=False,
        bytes=nbytes,
        count=count,
    )


def bucket_count(parameters: int, bucket_bytes: int) -> int:
    """Return the number of buckets for the gradients of `parameters`."""
    rest = max(0, NUMBER_BYTES * parameters - FIRST_BUCKET_BYTES)
    return 1 + -(-rest // bucket_bytes)


def _passed(each: Transfer) -> float:
    """Return the bytes that a worker sends in a transfer, by a ring or by direct sends."""
    if each.operation in ("send", "receive"):
        return each.total_bytes
    ways = 2 if each.operation == "all-reduce" else 1
    return ways * each.total_bytes * (each.workers - 1) / each.workers
