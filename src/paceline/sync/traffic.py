"""What agreeing sends over a link and moves in memory, as the planner counts it."""

from dataclasses import dataclass

from paceline.specs.measurements.dry_run import Transfer

NUMBER_BYTES = 4
"""Of a weight or a gradient as it is exchanged without compression."""


@dataclass(frozen=True)
class Traffic:
    """How the replicas of what a worker holds agree."""

    transfers: tuple[Transfer, ...]
    """Of one exchange, one after the other, on a worker that has most to send or to receive."""
    busiest: int
    """Workers that have; their transfers are all that passes, since others meet only them."""
    per_step: float
    """Exchanges in a step."""
    hidden_steps: int
    """That an exchange may take while training goes on, beside the backward of `allreduce`."""
    device_bytes: float
    """That a worker reads and writes in its memory for one exchange: encoding, decoding, adding."""
    launches: float = 0.0
    """Operations that encoding and decoding take; on accelerators, the host may need longer for
    these than the device for the bytes."""
    crossing: float = 1.0
    """Of the time of these transfers one after the other, what is left where those of several
    workers cross each other on a link, which carries as much in one direction as in the other."""

    @property
    def bytes_per_step(self) -> float:
        """That one of the busiest sends, or receives from others than them."""
        return self.per_step * sum(_passed(each) for each in self.transfers)


def copied(elements: int, times: float) -> float:
    """Bytes that are read and written where so many numbers are copied so many times."""
    return 2 * NUMBER_BYTES * elements * times


def transfer(operation: str, workers: int, nbytes: int, count: int = 1) -> Transfer:
    """Between so many replicas; of so many bytes, so often."""
    return Transfer(
        operation=operation,
        dimension="replicas",
        workers=workers,
        inside_node=False,
        bytes=nbytes,
        count=count,
    )


def _passed(each: Transfer) -> float:
    """Bytes of a worker's own in a transfer, as a ring or direct sends pass them."""
    if each.operation in ("send", "receive"):
        return each.total_bytes
    ways = 2 if each.operation == "all-reduce" else 1
    return ways * each.total_bytes * (each.workers - 1) / each.workers
