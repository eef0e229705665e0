"""A cluster's hardware: devices, links and their number, each figure with its source."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.prices import Prices

Precision = Literal["fp32", "fp16", "bf16", "fp8", "fp4"]
"""Number format of matrix products."""


Operation = Literal["all-reduce", "all-gather", "reduce-scatter", "send"]
"""Measured collectives and sends, as in `Transfer.operation`."""


class MatmulRate(Spec):
    """Measured rate of a product of two square matrices."""

    size: PositiveInt
    """Rows and columns of each matrix."""
    precision: Precision
    flops_per_second: PositiveFloat


class CollectiveCost(Spec):
    """A line fitted to the time of a collective: latency + (bytes - free bytes) / rate."""

    operation: Operation
    members: PositiveInt
    members_per_node: PositiveInt
    latency_seconds: NonNegativeFloat
    bytes_per_second: PositiveFloat
    """Rate in bytes of the whole tensor that is summed, gathered, scattered or sent."""
    free_bytes: NonNegativeFloat = 0.0
    """Bytes that cost only the latency: buffers and token buckets on the way take them at once."""


class Device(Spec):
    """One accelerator, with published and measured figures."""

    name: str
    kind: Literal["accelerator", "cpu"] = "accelerator"
    peak_flops: dict[Precision, PositiveFloat]
    """Dense FLOP/s by precision, without sparsity."""
    memory_bytes: PositiveInt
    memory_bytes_per_second: PositiveFloat
    units: PositiveInt
    """Multiprocessors or compute units, which a matrix product must be large enough to fill."""
    matmul_efficiency: float = Field(gt=0, le=1)
    """Fraction of the peak that the best matrix size reaches."""
    sustained: float = Field(default=1.0, gt=0, le=1)
    """Fraction of that which hours of training sustain, at operating temperature and power
    limit."""
    sustained_in: dict[str, float] = Field(default_factory=dict)
    """The same by precision, where it is known to differ."""
    launch_seconds: PositiveFloat | None = None
    """Host time of a small operation; None if not measured."""
    watts: PositiveFloat | None = None
    """Power limit; None if unknown."""
    source: str
    """Source of the figures above."""
    efficiency_source: str
    """Source of `matmul_efficiency`."""
    sustained_source: str = "assumed"
    """Source of `sustained`."""
    matmuls: tuple[MatmulRate, ...] = ()
    """Measured rates; empty unless the cluster was probed."""

    def peak(self, precision: str) -> float:
        """Return the peak FLOP/s in `precision`."""
        for name, flops in self.peak_flops.items():
            if name == precision:
                return flops
        raise PacelineError(
            f"{self.name} has no matrix products in {precision}",
            fix=f"use one of {', '.join(self.peak_flops)}",
        )

    def matmul_rate(self, precision: str) -> float:
        """Return the FLOP/s that large matrix products sustain in `precision`."""
        sustained = self.sustained_in.get(precision, self.sustained)
        return self.peak(precision) * self.matmul_efficiency * sustained


class Link(Spec):
    """A link of one device, in one direction."""

    name: str
    latency_seconds: NonNegativeFloat
    bytes_per_second: PositiveFloat
    """Measured rate of collectives with large messages; the line rate if not measured."""
    source: str


class FittedNumber(Spec):
    """One of the planner's coefficients, as fitted to runs on a cluster."""

    value: PositiveFloat
    spread: PositiveFloat
    """Standard deviation of its logarithm: 0.1 is about ten percent."""


class NodePower(Spec):
    """A node's power draw at the wall, by the activity of its devices."""

    other_watts: NonNegativeFloat
    """Power of everything but the devices: processors, memory, fans, network interfaces."""
    computing: float = Field(gt=0, le=1)
    """Fraction of a device's power limit that it draws while it computes."""
    communicating: float = Field(gt=0, le=1)
    """The same fraction while it communicates, or waits for other workers."""
    idle: float = Field(gt=0, le=1)
    """The same fraction while nothing runs on it."""
    supply_efficiency: float = Field(default=1.0, gt=0, le=1)
    """Fraction of the power at the wall that arrives behind the power supply."""
    source: str


class Cluster(Spec):
    """Equal nodes of equal devices, with links inside a node and between nodes."""

    nodes: PositiveInt
    devices_per_node: PositiveInt
    device: Device
    inside: Link
    """Link between the devices of one node."""
    between: Link
    """One network interface of a node."""
    interfaces_per_node: PositiveInt | None = None
    """Network interfaces of a node; None: one per device."""
    power: NodePower | None = None
    """Power of a node; None if unknown."""
    grams_per_kwh: NonNegativeFloat | None = None
    """Grams of carbon dioxide per kWh of the site's electricity."""
    prices: Prices | None = None
    """What the nodes cost; None if unknown."""
    failures_per_device_hour: NonNegativeFloat | None = None
    """Unplanned stops per device and hour; None if not counted."""
    collectives: tuple[CollectiveCost, ...] = ()
    """Measured costs; empty unless the cluster was probed."""
    numbers: dict[str, FittedNumber] = Field(default_factory=dict)
    """The planner's coefficients, fitted to runs (`paceline plan --calibrate`)."""
    remarks: tuple[str, ...] = ()
    """A probe's findings: nodes and links that are slower than their peers."""

    @property
    def devices(self) -> int:
        """Devices on all nodes."""
        return self.nodes * self.devices_per_node

    @property
    def network_bytes_per_second(self) -> float:
        """Network rate of one device while all devices of its node send."""
        interfaces = self.interfaces_per_node or self.devices_per_node
        return self.between.bytes_per_second * interfaces / self.devices_per_node

    def node_watts(self, busy: float) -> float | None:
        """Return the power of a node at the wall; None without `power` or the device's `watts`.

        The devices compute for the fraction `busy` of the time and are idle for the rest. Linear
        from idle to busy, as Fan, Weber and Barroso (2007) modeled servers.
        """
        if self.power is None or self.device.watts is None:
            return None
        drawn = self.power.idle + (self.power.computing - self.power.idle) * busy
        inside = self.power.other_watts + self.devices_per_node * self.device.watts * drawn
        return inside / self.power.supply_efficiency
