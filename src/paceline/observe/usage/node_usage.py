"""Resource usage of one node's workers, summed up event by event."""

from dataclasses import dataclass, field

from paceline.specs import Cluster, Usage


@dataclass
class NodeUse:
    """Resource usage of one node's workers in one generation of a run."""

    node: str
    seconds: float = 0.0
    device_seconds: float = 0.0
    cores: int = 0
    busy_seconds: float = 0.0
    """Busy time of the mean core."""
    peak_memory_bytes: int = 0
    memory_total_bytes: int = 0
    sent_bytes: int | None = None
    """Bytes sent to the other workers; None if there are none."""
    received_bytes: int | None = None
    gpus: int = 0
    gpu_seconds: float = 0.0
    """Sampled time with known GPU utilization, summed over all GPUs."""
    gpu_busy_seconds: float = 0.0
    gpu_peak_memory_bytes: int | None = None
    """Peak memory of the fullest GPU."""
    joules: dict[str, float] = field(default_factory=dict)
    """Measured joules, by counter."""
    all_counted: bool = True
    """Whether every event has the same counters, so that none stopped reporting."""

    def take(self, event: Usage) -> None:
        """Add the node's next event."""
        if self.seconds and event.joules.keys() != self.joules.keys():
            self.all_counted = False
        self.seconds += event.seconds
        self.device_seconds += event.workers * event.seconds
        self.cores = event.cores
        self.busy_seconds += event.cpu_share * event.seconds
        self.peak_memory_bytes = max(self.peak_memory_bytes, event.memory_bytes)
        self.memory_total_bytes = event.memory_total_bytes
        if event.interface is not None:
            passed = event.network.get(event.interface)
            self.sent_bytes = (self.sent_bytes or 0) + (passed.sent_bytes if passed else 0)
            self.received_bytes = (self.received_bytes or 0) + (
                passed.received_bytes if passed else 0
            )
        self.gpus = len(event.gpus)
        for gpu in event.gpus:
            if gpu.busy is not None:
                self.gpu_seconds += event.seconds
                self.gpu_busy_seconds += gpu.busy * event.seconds
            if gpu.memory_bytes is not None:
                self.gpu_peak_memory_bytes = max(self.gpu_peak_memory_bytes or 0, gpu.memory_bytes)
        for counter, joules in event.joules.items():
            self.joules[counter] = self.joules.get(counter, 0.0) + joules

    @property
    def measured_joules(self) -> float | None:
        """Total of all counters; None if there are none or if one stopped reporting."""
        return sum(self.joules.values()) if self.joules and self.all_counted else None

    def assumed_joules(self, cluster: Cluster | None) -> float | None:
        """Estimate the energy from device utilization and the power in the cluster file."""
        if cluster is None or not self.seconds:
            return None
        if cluster.device.kind == "cpu":
            busy = self.busy_seconds / self.seconds
        elif self.gpu_seconds:
            busy = self.gpu_busy_seconds / self.gpu_seconds
        else:
            return None
        watts = cluster.node_watts(busy)
        return None if watts is None else watts * self.seconds
