"""A cluster's hardware: devices, links and their number, each figure with its source."""

from itertools import pairwise
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from paceline.specs.base import FiniteSpec
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.kernels import KernelTable
from paceline.specs.measurements.prices import Prices

Precision = Literal["fp32", "fp16", "bf16", "fp8", "fp4"]
"""Number format of matrix products."""


Operation = Literal["all-reduce", "all-gather", "reduce-scatter", "send"]
"""Measured collectives and sends, as in `Transfer.operation`."""


class MatmulRate(FiniteSpec):
    """Measured rate of a product of two square matrices."""

    size: PositiveInt
    """Rows and columns of each matrix."""
    precision: Precision
    flops_per_second: PositiveFloat


class CollectiveCost(FiniteSpec):
    """A line fitted to the time of a collective: latency + (bytes - free bytes) / rate."""

    operation: Operation
    members: PositiveInt
    members_per_node: PositiveInt
    latency_seconds: NonNegativeFloat
    bytes_per_second: PositiveFloat
    """Rate in bytes of the whole tensor that is summed, gathered, scattered or sent."""
    free_bytes: NonNegativeFloat = 0.0
    """Bytes that cost only the latency: buffers and token buckets on the way take them at once."""


class Device(FiniteSpec):
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


class Link(FiniteSpec):
    """A link of one device, in one direction."""

    name: str
    latency_seconds: NonNegativeFloat
    bytes_per_second: PositiveFloat
    """Measured rate of collectives with large messages; the line rate if not measured."""
    source: str


class Tier(FiniteSpec):
    """A tier of switches above the nodes, such as leaves or spines."""

    name: str
    nodes: PositiveInt
    """Nodes below one of its switches."""
    oversubscription: float = Field(ge=1)
    """Bandwidth from below such a switch over its bandwidth upwards: 2 for 2:1."""


class MixedNodes(FiniteSpec):
    """Nodes of a cluster with another device than the others."""

    nodes: PositiveInt
    device: Device


class FittedNumber(FiniteSpec):
    """One of the planner's coefficients, as fitted to runs on a cluster."""

    value: float = Field(ge=1e-15, le=1e15)
    spread: float = Field(gt=0, le=10)
    """Standard deviation of its logarithm: 0.1 is about ten percent."""


class NodePower(FiniteSpec):
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


class Cluster(FiniteSpec):
    """Nodes with devices, mostly equal, with links inside a node and between nodes."""

    nodes: int = Field(gt=0, le=10**6)
    devices_per_node: int = Field(gt=0, le=4096)
    device: Device
    inside: Link
    """Link between the devices of one node."""
    between: Link
    """One network interface of a node."""
    interfaces_per_node: PositiveInt | None = None
    """Network interfaces of a node; None: one per device."""
    tiers: tuple[Tier, ...] = ()
    """Switches above the nodes, from the lowest tier; empty: every node reaches every other at full
    rate."""
    mixed: tuple[MixedNodes, ...] = ()
    """Of all nodes, the last ones, which have another device; empty: all are equal."""
    power: NodePower | None = None
    """Power of a node; None if unknown."""
    grams_per_kwh: NonNegativeFloat | None = None
    """Grams of carbon dioxide per kWh of the site's electricity."""
    prices: Prices | None = None
    """What the nodes cost; None if unknown."""
    failures_per_device_hour: float | None = Field(default=None, ge=0, le=1e6)
    """Unplanned stops per device and hour; None if not counted."""
    collectives: tuple[CollectiveCost, ...] = ()
    """Measured costs; empty unless the cluster was probed."""
    kernels: KernelTable | None = Field(default=None, exclude=True)
    """Measured kernels of `device`, from a file beside the cluster's; None if not measured."""
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

    @model_validator(mode="after")
    def _check_nodes(self) -> "Cluster":
        for lower, upper in pairwise(self.tiers):
            if upper.nodes % lower.nodes or upper.nodes == lower.nodes:
                raise PacelineError(
                    f"[[tiers]] {upper.name} has {upper.nodes} nodes below a switch, {lower.name}"
                    f" before it {lower.nodes}",
                    fix="write the lowest tier first, and a multiple of its nodes above it",
                )
        others = sum(each.nodes for each in self.mixed)
        if others >= self.nodes and self.mixed:
            raise PacelineError(
                f"[[mixed]] has {others} of the cluster's {self.nodes} nodes",
                fix="write the number of all nodes as `nodes`, with those of `device` among them",
            )
        return self

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
