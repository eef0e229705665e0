"""What one node's workers used, summed up event by event."""

from dataclasses import dataclass, field

from paceline.specs import Cluster, Usage


@dataclass
class NodeUse:
    """What one node's workers used in one start of a run, event by event."""

    node: str
    seconds: float = 0.0
    device_seconds: float = 0.0
    cores: int = 0
    busy_seconds: float = 0.0
    """Of the mean core."""
    peak_memory_bytes: int = 0
    memory_total_bytes: int = 0
    sent_bytes: int | None = None
    """Towards the other workers; unset where there are none."""
    received_bytes: int | None = None
    gpus: int = 0
    gpu_seconds: float = 0.0
    """In which it is known how busy the GPUs were, of all of them together."""
    gpu_busy_seconds: float = 0.0
    gpu_peak_memory_bytes: int | None = None
    """Of the fullest GPU."""
    joules: dict[str, float] = field(default_factory=dict)
    """Measured, by counter."""
    all_counted: bool = True
    """Whether every event has the same counters: none fell silent meanwhile."""

    def take(self, event: Usage) -> None:
        """The next event of the node."""
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
        """Of all counters; unknown where there are none, or one fell silent."""
        return sum(self.joules.values()) if self.joules and self.all_counted else None

    def assumed_joules(self, cluster: Cluster | None) -> float | None:
        """By how busy the devices were and what the cluster's file says of their power."""
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
