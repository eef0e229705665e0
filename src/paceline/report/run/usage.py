"""What a run used of its nodes, and the energy, carbon and money that this came to."""

from collections.abc import Iterable, Sequence
from typing import Literal

from paceline.report.drawing import units
from paceline.report.reading.node_usage import NodeUse
from paceline.specs import Cluster, Plan
from paceline.specs.base import Spec

JOULES_PER_KWH = 3.6e6
SECONDS_PER_HOUR = 3600.0


class NodeUsage(Spec):
    """What one node's workers used, in all starts of the run."""

    node: str
    seconds: float
    """That it was watched for."""
    cores: int
    cpu_share: float
    """The part of the time in which these cores were busy, with whatever."""
    peak_memory_bytes: int
    """Resident in the workers' processes, added up; the most of all readings."""
    memory_total_bytes: int
    sent_bytes_per_step: float | None
    """Through the interface towards the other workers, whoever sent it."""
    received_bytes_per_step: float | None
    gpus: int
    gpu_busy: float | None
    gpu_peak_memory_bytes: int | None
    joules: float | None
    watts: float | None
    """Mean."""


class Energy(Spec):
    """What the nodes drew, from the moment when the workers had met to their end."""

    joules: float
    kilowatt_hours: float
    joules_per_step: float | None
    joules_per_sample: float | None
    watts: float
    """Of a node, mean over the nodes and the time."""
    origin: Literal["measured", "assumed"]
    of: str
    """What was counted, or what was assumed."""
    grams_per_kwh: float | None
    """Of carbon dioxide, where the cluster's file says it."""
    grams: float | None
    money: float | None
    """For electricity, where the cluster's file has its price."""


class UsageFigures(Spec):
    """What a run used."""

    nodes: list[NodeUsage]
    cpu_share: float
    """Mean over the nodes and the time, as `gpu_busy`."""
    gpu_busy: float | None
    peak_memory_bytes: int
    """On the fullest node."""
    sent_bytes_per_step: float | None
    """By all nodes together."""
    device_hours: float
    device_money: float | None
    """For the devices' hours, where the cluster's file has their price."""
    counted_nodes: int
    """Nodes whose power counters could be read."""
    energy: Energy | None


def usage_figures(
    uses: Sequence[NodeUse], steps: int, samples: int, cluster: Cluster | None = None
) -> UsageFigures | None:
    """All starts together; none where nothing was written of it.

    `steps` and `samples` are those that count, so what was taken again makes each of them dearer.
    """
    watched = [use for use in uses if use.seconds > 0]
    if not watched:
        return None
    seconds = sum(use.seconds for use in watched)
    hours = sum(use.device_seconds for use in watched) / SECONDS_PER_HOUR
    price = cluster.device.price_per_hour if cluster else None
    energy = _energy(watched, steps, samples, cluster)
    by_node: dict[str, list[NodeUse]] = {}
    for use in watched:
        by_node.setdefault(use.node, []).append(use)
    measured = energy is not None and energy.origin == "measured"
    return UsageFigures(
        nodes=[_of_node(of, steps, cluster, measured) for of in by_node.values()],
        cpu_share=sum(use.busy_seconds for use in watched) / seconds,
        gpu_busy=_gpu_busy(watched),
        peak_memory_bytes=max(use.peak_memory_bytes for use in watched),
        sent_bytes_per_step=_by(_sum(use.sent_bytes for use in watched), steps),
        device_hours=hours,
        device_money=None if price is None else price * hours,
        counted_nodes=sum(
            all(use.measured_joules is not None for use in of) for of in by_node.values()
        ),
        energy=energy,
    )


def energy_sentence(figures: UsageFigures) -> str:
    """What was drawn, how that is known, and what it came to; or why nobody knows."""
    energy = figures.energy
    if energy is None:
        return _why_unknown(figures)
    words = units.energy(energy.joules)
    if 0.001 <= energy.kilowatt_hours < 1:
        words += f" ({energy.kilowatt_hours:.3g} kWh)"
    if energy.origin == "measured":
        words += f", measured: {energy.of}; what has no counter, as fans and power supplies, is not"
        words += " in it."
    else:
        words += f", assumed from {energy.of}."
    if energy.joules_per_step is not None and energy.joules_per_sample is not None:
        words += (
            f" {units.energy(energy.joules_per_step)} per step,"
            f" {units.energy(energy.joules_per_sample)} per sample."
        )
    if energy.grams is not None:
        words += f" {units.mass(energy.grams)} of carbon dioxide,"
        words += f" at {energy.grams_per_kwh:.3g} g/kWh."
    if energy.money is not None:
        words += f" Electricity for {units.money(energy.money)}."
    return words


def _why_unknown(figures: UsageFigures) -> str:
    if figures.counted_nodes:
        found = (
            f"Power counters could be read on {figures.counted_nodes:,} of"
            f" {units.count(len(figures.nodes), 'node')} only"
        )
    else:
        found = "No power counters could be read on these machines"
    return (
        f"{found}: what the run drew is not known. `paceline report --cluster FILE` assumes it from"
        " how busy the devices were, where the file has [power] and the device's watts."
    )


def usage_sentences(figures: UsageFigures, share_of_peak: float | None) -> list[str]:
    """What stands above the table of nodes."""
    found = [energy_sentence(figures)]
    if figures.device_money is not None:
        cost = units.money(figures.device_money)
        found.append(f"{figures.device_hours:.3g} device-hours for {cost}.")
    if share_of_peak is not None:
        found.append(
            f"The model's matrix products took {units.percent(share_of_peak)} of what the devices"
            " could compute (model FLOPs utilisation)."
        )
    return found


def flops_share(plan: Plan, devices: int, samples_per_second: float) -> float | None:
    """Of the devices' peak; unknown where no plan says what a sample takes or what the peak is."""
    said = plan.estimate
    if said is None or said.layout.precision != plan.layout.precision or not samples_per_second:
        return None
    if said.flops_per_sample is None or said.device_peak_flops is None:
        return None
    return said.flops_per_sample * samples_per_second / (devices * said.device_peak_flops)


def _of_node(
    uses: Sequence[NodeUse], steps: int, cluster: Cluster | None, measured: bool
) -> NodeUsage:
    seconds = sum(use.seconds for use in uses)
    joules = _sum(_joules(uses, cluster, measured))
    return NodeUsage(
        node=uses[0].node,
        seconds=seconds,
        cores=uses[-1].cores,
        cpu_share=sum(use.busy_seconds for use in uses) / seconds,
        peak_memory_bytes=max(use.peak_memory_bytes for use in uses),
        memory_total_bytes=uses[-1].memory_total_bytes,
        sent_bytes_per_step=_by(_sum(use.sent_bytes for use in uses), steps),
        received_bytes_per_step=_by(_sum(use.received_bytes for use in uses), steps),
        gpus=uses[-1].gpus,
        gpu_busy=_gpu_busy(uses),
        gpu_peak_memory_bytes=max(
            (use.gpu_peak_memory_bytes for use in uses if use.gpu_peak_memory_bytes is not None),
            default=None,
        ),
        joules=joules,
        watts=_by(joules, seconds),
    )


def _energy(
    uses: Sequence[NodeUse], steps: int, samples: int, cluster: Cluster | None
) -> Energy | None:
    """Measured on all nodes, or else assumed for all: sums of both would say neither."""
    measured = all(use.measured_joules is not None for use in uses)
    joules = _sum(_joules(uses, cluster, measured))
    if joules is None:
        return None
    kilowatt_hours = joules / JOULES_PER_KWH
    grams = cluster.grams_per_kwh if cluster else None
    price = cluster.price_per_kwh if cluster else None
    return Energy(
        joules=joules,
        kilowatt_hours=kilowatt_hours,
        joules_per_step=_by(joules, steps),
        joules_per_sample=_by(joules, samples),
        watts=joules / sum(use.seconds for use in uses),
        origin="measured" if measured else "assumed",
        of=_counted(uses) if measured or cluster is None else _assumed(cluster),
        grams_per_kwh=grams,
        grams=None if grams is None else grams * kilowatt_hours,
        money=None if price is None else price * kilowatt_hours,
    )


def _joules(
    uses: Sequence[NodeUse], cluster: Cluster | None, measured: bool
) -> Iterable[float | None]:
    return (use.measured_joules if measured else use.assumed_joules(cluster) for use in uses)


def _counted(uses: Sequence[NodeUse]) -> str:
    """`counters of 16 GPUs and 4 processors`."""
    names = {(use.node, counter) for use in uses for counter in use.joules}
    kinds = {"gpu": "GPU", "package": "processor", "dram": "memory controller"}
    parts = [
        units.count(number, word)
        for kind, word in kinds.items()
        if (number := sum(counter.startswith(kind) for _, counter in names))
    ]
    return f"counters of {' and '.join(parts)}"


def _assumed(cluster: Cluster) -> str:
    assert cluster.power is not None
    what = "cores" if cluster.device.kind == "cpu" else "GPUs"
    return f"how busy the {what} were, and the cluster's file: {cluster.power.source}"


def _gpu_busy(uses: Sequence[NodeUse]) -> float | None:
    return _by(sum(use.gpu_busy_seconds for use in uses), sum(use.gpu_seconds for use in uses))


def _sum(values: Iterable[float | None]) -> float | None:
    """Unknown where a part is."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _by(value: float | None, number: float) -> float | None:
    return None if value is None or not number else value / number
