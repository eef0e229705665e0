"""What a cluster is made of: devices, links and how many of them, each figure with its source."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError

Precision = Literal["fp32", "fp16", "bf16", "fp8", "fp4"]
"""What matrix products are computed in."""


Operation = Literal["all-reduce", "all-gather", "reduce-scatter", "send"]
"""What workers do together, as in `Transfer.operation`."""


class MatmulRate(Spec):
    """What a product of two square matrices reached."""

    size: PositiveInt
    """Rows, and columns, of each matrix."""
    precision: Precision
    flops_per_second: PositiveFloat


class CollectiveCost(Spec):
    """A line through what a collective took: latency + (bytes - free bytes) / rate."""

    operation: Operation
    members: PositiveInt
    members_per_node: PositiveInt
    latency_seconds: NonNegativeFloat
    bytes_per_second: PositiveFloat
    """Of the whole tensor that is summed, gathered, scattered or sent."""
    free_bytes: NonNegativeFloat = 0.0
    """That pass with the latency alone: what buffers and token buckets on the way take at once."""


class Device(Spec):
    """One accelerator, as its maker and those who measured it describe it."""

    name: str
    kind: Literal["accelerator", "cpu"] = "accelerator"
    peak_flops: dict[Precision, PositiveFloat]
    """Dense matrix products per second, without sparsity."""
    memory_bytes: PositiveInt
    memory_bytes_per_second: PositiveFloat
    units: PositiveInt
    """Multiprocessors or compute units, which a matrix product must be large enough to fill."""
    matmul_efficiency: float = Field(gt=0, le=1)
    """Of the peak, what the best of all matrix sizes reaches."""
    sustained: float = Field(default=1.0, gt=0, le=1)
    """Of that, what training reaches that goes on for hours: hot, and held to its power limit."""
    launch_seconds: PositiveFloat | None = None
    """The host's time for a small operation, where it was measured."""
    watts: PositiveFloat | None = None
    """Power limit, where it is known."""
    price_per_hour: PositiveFloat | None = None
    source: str
    """Of the figures above."""
    efficiency_source: str
    """Of `matmul_efficiency`."""
    sustained_source: str = "assumed"
    """Of `sustained`."""
    matmuls: tuple[MatmulRate, ...] = ()
    """Measured, where the cluster was probed."""

    def peak(self, precision: str) -> float:
        """Products per second in `precision`."""
        for name, flops in self.peak_flops.items():
            if name == precision:
                return flops
        raise PacelineError(
            f"{self.name} has no matrix products in {precision}",
            fix=f"use one of {', '.join(self.peak_flops)}",
        )


class Link(Spec):
    """What connects devices: of one device, in one direction."""

    name: str
    latency_seconds: NonNegativeFloat
    bytes_per_second: PositiveFloat
    """That a collective of large messages reaches, where it was measured; else the line rate."""
    source: str


class FittedNumber(Spec):
    """One of the planner's numbers, as runs on a cluster have shown it."""

    value: PositiveFloat
    spread: PositiveFloat
    """Standard deviation of its logarithm: 0.1 is about ten percent."""


class NodePower(Spec):
    """What a node draws from the wall, by what its devices do."""

    other_watts: NonNegativeFloat
    """All that is not a device: processors, memory, fans, network interfaces."""
    computing: float = Field(gt=0, le=1)
    """Of a device's power limit, what it draws while it computes."""
    communicating: float = Field(gt=0, le=1)
    """While it exchanges, or waits for others to."""
    idle: float = Field(gt=0, le=1)
    """While nothing runs on it."""
    supply_efficiency: float = Field(default=1.0, gt=0, le=1)
    """Of what is drawn from the wall, what arrives behind the power supply."""
    source: str


class Cluster(Spec):
    """Equal nodes of equal devices, joined by links inside a node and between nodes."""

    nodes: PositiveInt
    devices_per_node: PositiveInt
    device: Device
    inside: Link
    """Between the devices of one node."""
    between: Link
    """One network interface of a node."""
    interfaces_per_node: PositiveInt | None = None
    """Network interfaces of a node; one for each device where unset."""
    power: NodePower | None = None
    """Of a node, where it is known; the price of a device stands with the device."""
    grams_per_kwh: NonNegativeFloat | None = None
    """Of carbon dioxide, for the electricity there."""
    price_per_kwh: NonNegativeFloat | None = None
    """Of electricity, where it is paid apart from the devices."""
    failures_per_device_hour: NonNegativeFloat | None = None
    """Stops that nobody planned, where they were counted."""
    collectives: tuple[CollectiveCost, ...] = ()
    """Measured, where the cluster was probed."""
    numbers: dict[str, FittedNumber] = Field(default_factory=dict)
    """What runs have shown of the planner's numbers (`paceline plan --calibrate`)."""
    remarks: tuple[str, ...] = ()
    """What a probe found unusual: nodes and links that are slower than their peers."""

    @property
    def devices(self) -> int:
        """On all nodes."""
        return self.nodes * self.devices_per_node

    @property
    def network_bytes_per_second(self) -> float:
        """Of one device, while all devices of its node send."""
        interfaces = self.interfaces_per_node or self.devices_per_node
        return self.between.bytes_per_second * interfaces / self.devices_per_node

    def node_watts(self, busy: float) -> float | None:
        """From the wall, of a node whose devices compute for that part of the time and are idle for
        the rest; unknown without `power` or the device's `watts`.

        A straight line from idle to busy, as Fan, Weber and Barroso (2007) used it for servers.
        """
        if self.power is None or self.device.watts is None:
            return None
        drawn = self.power.idle + (self.power.computing - self.power.idle) * busy
        inside = self.power.other_watts + self.devices_per_node * self.device.watts * drawn
        return inside / self.power.supply_efficiency
