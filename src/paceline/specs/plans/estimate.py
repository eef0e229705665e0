"""The predictions of a plan: numbers with their origin and uncertainty."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.plans.layout import Layout
from paceline.specs.plans.sync import AnySync, default_sync

Origin = Literal["measured", "published", "assumed"]
"""`measured`: fitted to runs on this cluster. `published`: a vendor's or a paper's figure.
`assumed`: typical of such software, without a source for this cluster."""


class Amount(Spec):
    """A number with its 90 % interval."""

    value: NonNegativeFloat
    low: NonNegativeFloat
    high: NonNegativeFloat
    origin: Origin
    """The weakest origin among its inputs."""


class Estimate(Spec):
    """The prediction for one layout of one model on one cluster."""

    layout: Layout
    sync: AnySync = Field(default_factory=default_sync)
    """Synchronization mode of the replicas."""
    extra_samples: PositiveFloat = 1.0
    """Samples needed to reach the same loss, relative to plain all-reduce: always assumed."""
    batch: int
    step_seconds: Amount
    """Step time; the mean, if not all steps communicate."""
    simulated_seconds: PositiveFloat | None = None
    """Step time simulated event by event, with workers of unequal speed; for the best layouts
    only."""
    seconds: dict[str, NonNegativeFloat]
    """Step breakdown; the sum is `step_seconds.value`."""
    peak_bytes: Amount
    """Peak memory of the fullest device."""
    bytes: dict[str, NonNegativeFloat]
    """The same by use; the sum is `peak_bytes.value`."""
    fits: bool
    """Whether the upper end of the peak's interval, its 95 % bound, fits into the device's
    memory."""
    flops_per_sample: PositiveFloat | None = None
    """FLOPs of the model's matrix products in forward and backward, without recomputation."""
    device_peak_flops: PositiveFloat | None = None
    """Peak FLOP/s of one device in the layout's precision."""

    @property
    def samples_per_second(self) -> float:
        """Throughput of the training."""
        return self.batch / self.step_seconds.value

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization; None if FLOPs or peak are unknown."""
        if self.flops_per_sample is None or self.device_peak_flops is None:
            return None
        used = self.flops_per_sample * self.samples_per_second
        return used / (self.layout.workers * self.device_peak_flops)


class Alternative(Spec):
    """A layout that was not chosen."""

    what: str
    """The difference from the chosen layout, in words."""
    layout: Layout
    sync: AnySync = Field(default_factory=default_sync)
    step_seconds: PositiveFloat | None = None
    """None if it does not fit."""
    peak_bytes: NonNegativeFloat
    why: str
    """The reason why it lost."""


class ScalingPoint(Spec):
    """The best layout on one number of nodes."""

    nodes: PositiveInt
    devices: PositiveInt
    layout: Layout
    sync: AnySync = Field(default_factory=default_sync)
    batch: PositiveInt
    step_seconds: Amount
    samples_per_second: PositiveFloat
    efficiency: PositiveFloat
    """Samples per second and node, relative to the fewest nodes that fit the model; divided by
    the extra samples that the synchronization mode needs, and the batch if it is searched."""


class Help(Spec):
    """The speed-up from a change of the cluster or the batch."""

    change: str
    faster: PositiveFloat
    """Samples per second relative to the plan's."""


class QueueWait(Spec):
    """The time of a job in the queue, from past jobs of about as many nodes."""

    median_seconds: NonNegativeFloat
    high_seconds: NonNegativeFloat
    """Nine of ten jobs waited less."""
    jobs: PositiveInt
    """Jobs of the training, each of which waits."""
    from_jobs: PositiveInt
    """Past jobs that the figures are from."""
    fewest_nodes: PositiveInt
    most_nodes: PositiveInt

    @property
    def all_seconds(self) -> float:
        """Wait of all jobs of the training, in the median."""
        return self.jobs * self.median_seconds


class TrainingCost(Spec):
    """Time, energy and money of a whole training under a plan."""

    steps: PositiveInt
    tokens: PositiveInt | None = None
    """Tokens of these steps; None for samples without a sequence."""
    seconds: Amount
    """Duration, including failures and checkpoints."""
    goodput: PositiveFloat
    """Fraction of the time that is useful training."""
    save_every_seconds: PositiveFloat | None
    """The checkpoint interval that loses the least time; None if nothing fails."""
    device_hours: PositiveFloat
    kilowatt_hours: PositiveFloat | None = None
    """None if the devices' power is unknown."""
    money: NonNegativeFloat | None = None
    """Price of the nodes' hours and electricity; None if unknown."""
    currency: str = ""
    slots: PositiveInt | None = None
    """Jobs needed under the scheduler's time limit; None without a limit."""
    queue: QueueWait | None = None
    """The time in the queue, which `seconds` does not include; None if unknown."""
