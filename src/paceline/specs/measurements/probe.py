"""Raw measurements of a probe's workers; a run's `probe.json`."""

from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.measurements.cluster import MatmulRate, Operation
from paceline.specs.measurements.kernels import KernelTable
from paceline.specs.measurements.profile import TrainingProfile


class ProbedWorker(Spec):
    """One worker and its device."""

    node: str
    device: str
    kind: Literal["accelerator", "cpu"]
    units: PositiveInt
    memory_bytes: PositiveInt
    launch_seconds: PositiveFloat
    """Host time of a small operation while all workers run it."""
    memory_bytes_per_second: PositiveFloat
    """Read and written by a large copy."""
    matmuls: tuple[MatmulRate, ...]
    best_flops: PositiveFloat
    """Best rate of the same small products on every worker, used to compare peers."""
    watts: PositiveFloat | None = None
    """The device's power limit; None if it cannot be read."""


class CollectiveTime(Spec):
    """Time of one call: the median over calls, then over the groups that run concurrently."""

    operation: Operation
    members: PositiveInt
    members_per_node: PositiveInt
    nbytes: PositiveInt
    """Bytes of the whole tensor that is summed, gathered, scattered or sent."""
    seconds: PositiveFloat


class PairRate(Spec):
    """Rate between two nodes while no other worker uses their links."""

    nodes: tuple[NonNegativeInt, NonNegativeInt]
    """Numbers of the two nodes."""
    bytes_per_second: PositiveFloat


class Probed(Spec):
    """All measurements of a probe."""

    nodes: PositiveInt
    devices_per_node: PositiveInt
    backend: str
    """Backend of the collectives; `none` with one worker."""
    interface: str
    """Network interface of worker 0 toward the other workers."""
    workers: tuple[ProbedWorker, ...]
    """Workers by rank."""
    collectives: tuple[CollectiveTime, ...] = ()
    pairs: tuple[PairRate, ...] = ()
    kernels: KernelTable | None = None
    """Kernels of worker 0's device, if they were measured or cached."""
    kernels_cached: bool = False
    """Whether an earlier probe measured them."""
    profile: TrainingProfile | None = None
    """Profile of the timed training, if any."""
