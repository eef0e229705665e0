"""The communication of a synchronization mode, as the planner counts it."""

from dataclasses import dataclass

from paceline.specs.measurements.dry_run import Transfer

NUMBER_BYTES = 4
"""Of a weight or a gradient that is sent without compression."""
BUCKET_BYTES = 25 << 20
FIRST_BUCKET_BYTES = 1 << 20
"""The first bucket is small, so that communication begins early."""


@dataclass(frozen=True)
class Traffic:
    """What the replicas of a worker's part of the model send each other."""

    transfers: tuple[Transfer, ...]
    """Of one round, in sequence, on a worker with the most to send or to receive."""
    busiest: int
    """Number of workers with that much; their transfers are all the traffic, since the others
    communicate with them only."""
    per_step: float
    """Rounds per step."""
    hidden_steps: int
    """Steps that a round may overlap, apart from the backward of its own step."""
    device_bytes: float
    """That a worker reads and writes in its memory for a round: encoding, decoding, adding."""
    launches: float = 0.0
    """Kernel launches for encoding and decoding. On accelerators, the host may need longer for
    them than the device for the bytes."""
    crossing: float = 1.0
    """The fraction of the transfers' total time that remains where those of several workers cross
    on a link, which carries as much in each direction."""

    @property
    def bytes_per_step(self) -> float:
        """Bytes that one of the busiest workers sends, or receives from workers that are not."""
        return self.per_step * sum(_passed(each) for each in self.transfers)


def copied(elements: int, times: float) -> float:
    """Return the bytes that are read and written to copy `elements` numbers `times` times."""
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
    """Return the number of buckets in which the gradients of `parameters` are sent."""
    rest = max(0, NUMBER_BYTES * parameters - FIRST_BUCKET_BYTES)
    return 1 + -(-rest // bucket_bytes)


def _passed(each: Transfer) -> float:
    """Return the bytes that a worker sends in a transfer, by a ring or by direct sends."""
    if each.operation in ("send", "receive"):
        return each.total_bytes
    ways = 2 if each.operation == "all-reduce" else 1
    return ways * each.total_bytes * (each.workers - 1) / each.workers
