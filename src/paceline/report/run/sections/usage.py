"""Resource utilization of the nodes, and energy, carbon and cost."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from paceline.observe.usage.node_usage import NodeUse
from paceline.report.drawing.brief import Content, Tile
from paceline.report.drawing.tables import Table
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import Cluster, Prices, units
from paceline.specs.base import Spec

JOULES_PER_KWH = 3.6e6
SECONDS_PER_HOUR = 3600.0
MOST_NODES = 64


class NodeUsage(Spec):
    """Resource usage of one node's workers, over all starts of the run."""

    node: str
    seconds: float
    """Total sampled time."""
    cores: int
    cpu_share: float
    """Mean utilization of these cores, by all processes."""
    peak_memory_bytes: int
    """Total resident size of the workers' processes; the maximum over all samples."""
    memory_total_bytes: int
    sent_bytes_per_step: float | None
    """Bytes on the interface toward the other workers, by all processes."""
    received_bytes_per_step: float | None
    gpus: int
    gpu_busy: float | None
    gpu_peak_memory_bytes: int | None
    joules: float | None
    watts: float | None
    """Mean power."""


class Energy(Spec):
    """Energy of the nodes, from the workers' rendezvous to their end."""

    joules: float
    kilowatt_hours: float
    joules_per_step: float | None
    joules_per_sample: float | None
    watts: float
    """Mean power per node, over nodes and time."""
    origin: Literal["measured", "assumed"]
    of: str
    """The counters, or the source of the assumption."""
    grams_per_kwh: float | None
    """Grams of carbon dioxide per kWh, if the cluster file has the value."""
    grams: float | None
    money: float | None
    """Price of electricity with the site's part of it, if it is known and paid beside the hours."""


class UsageFigures(Spec):
    """Resource usage of a run."""

    nodes: list[NodeUsage]
    cpu_share: float
    """Mean over nodes and time, as `gpu_busy`."""
    gpu_busy: float | None
    peak_memory_bytes: int
    """Peak of the node with the highest peak."""
    sent_bytes_per_step: float | None
    """Sum over all nodes."""
    device_hours: float
    node_hours: float
    node_money: float | None
    """Price of these hours, if it is known."""
    currency: str
    counted_nodes: int
    """Number of nodes with readable power counters."""
    energy: Energy | None


def usage_figures(
    uses: Sequence[NodeUse],
    steps: int,
    samples: int,
    cluster: Cluster | None = None,
    prices: Prices | None = None,
) -> UsageFigures | None:
    """Return the usage over all starts, or None if no node was sampled.

    `steps` and `samples` are those that count, so repeated steps raise the cost of each.
    """
    watched = [use for use in uses if use.seconds > 0]
    if not watched:
        return None
    seconds = sum(use.seconds for use in watched)
    hours = sum(use.device_seconds for use in watched) / SECONDS_PER_HOUR
    node_hours = seconds / SECONDS_PER_HOUR
    energy = _energy(watched, steps, samples, cluster, prices)
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
        node_hours=node_hours,
        node_money=None if prices is None else prices.of_hours(node_hours),
        currency=prices.currency if prices else "",
        counted_nodes=sum(
            all(use.measured_joules is not None for use in of) for of in by_node.values()
        ),
        energy=energy,
    )


def energy_sentence(figures: UsageFigures) -> str:
    """Return energy, its source and its cost in words, or why it is unknown."""
    energy = figures.energy
    if energy is None:
        return _why_unknown(figures)
    words = units.energy(energy.joules)
    if 0.001 <= energy.kilowatt_hours < 1:
        words += f" ({energy.kilowatt_hours:.3g} kWh)"
    if energy.origin == "measured":
        words += f", measured by {energy.of}; parts without a counter, such as fans and power"
        words += " supplies, are not included."
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
        words += f" Electricity cost {units.money(energy.money)} {figures.currency}".rstrip() + "."
    return words


def _why_unknown(figures: UsageFigures) -> str:
    if figures.counted_nodes:
        found = (
            f"Power counters are readable on only {figures.counted_nodes:,} of"
            f" {units.count(len(figures.nodes), 'node')}"
        )
    else:
        found = "No power counters are readable on these nodes"
    return (
        f"{found}, so the energy is unknown. `paceline report --cluster FILE` computes it from the"
        " utilization of the devices, if the file has [power] and the device's watts."
    )


def usage_sentences(figures: UsageFigures, share_of_peak: float | None) -> list[str]:
    """Return the sentences above the table of nodes."""
    found = [energy_sentence(figures)]
    if figures.node_money is not None:
        cost = f"{units.money(figures.node_money)} {figures.currency}".rstrip()
        found.append(f"{figures.node_hours:.3g} node-hours cost {cost}.")
    if share_of_peak is not None:
        found.append(
            f"Model FLOPs utilization (MFU): {units.percent(share_of_peak)} of the devices' peak."
        )
    return found


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
    uses: Sequence[NodeUse],
    steps: int,
    samples: int,
    cluster: Cluster | None,
    prices: Prices | None,
) -> Energy | None:
    """Return the energy, either measured on all nodes or assumed for all, never mixed."""
    measured = all(use.measured_joules is not None for use in uses)
    joules = _sum(_joules(uses, cluster, measured))
    if joules is None:
        return None
    kilowatt_hours = joules / JOULES_PER_KWH
    grams = cluster.grams_per_kwh if cluster else None
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
        money=prices.of_electricity(kilowatt_hours) if prices and prices.per_kwh else None,
    )


def _joules(
    uses: Sequence[NodeUse], cluster: Cluster | None, measured: bool
) -> Iterable[float | None]:
    return (use.measured_joules if measured else use.assumed_joules(cluster) for use in uses)


def _counted(uses: Sequence[NodeUse]) -> str:
    """Format as `counters of 16 GPUs and 4 processors`."""
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
    return f"the utilization of the {what} and the cluster file ({cluster.power.source})"


def _gpu_busy(uses: Sequence[NodeUse]) -> float | None:
    return _by(sum(use.gpu_busy_seconds for use in uses), sum(use.gpu_seconds for use in uses))


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum, or None if a part is unknown."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _by(value: float | None, number: float) -> float | None:
    return None if value is None or not number else value / number


class _Usage(Section[UsageFigures | None]):
    order = 80
    key = "usage"

    def figures(self, run: ReportedRun) -> UsageFigures | None:
        steps, samples = run.summary.steps, run.summary.samples
        return usage_figures(run.state.usage, steps, samples, run.cluster, run.prices)

    def content(self, run: ReportedRun, figures: UsageFigures | None) -> Content | None:
        if figures is None:
            return None
        tiles: list[Tile] = []
        if figures.energy is not None:
            step = figures.energy.joules_per_step
            each = f", {units.energy(step)} per step" if step is not None else ""
            energy = units.energy(figures.energy.joules)
            tiles.append(("Energy", energy, f"{figures.energy.origin}{each}", ""))
        return Content(
            title="Utilization and energy",
            words=[" ".join(usage_sentences(figures, run.summary.flops_share))],
            tables=[_table(figures)],
            tiles=tiles,
        )


SECTION = _Usage()


def _table(figures: UsageFigures) -> Table:
    columns = ["Node", "Cores", "Busy", "Memory"]
    columns += ["GPUs", "GPU busy", "GPU memory"] * (figures.gpu_busy is not None)
    columns += ["Sent/step", "Received/step"]
    columns += ["Energy", "Watts"] * (figures.energy is not None)
    shown = figures.nodes[:MOST_NODES]
    rows = [[_cells(each)[name] for name in columns] for each in shown]
    caption = (
        "From the rendezvous of the workers to their end. Cores and network include other"
        " processes; memory is the peak of the workers' processes."
    )
    if len(shown) < len(figures.nodes):
        caption += f" The first {len(shown)} of {units.count(len(figures.nodes), 'node')}."
    return Table("Utilization and energy", columns, rows, ("Node",), caption)


def _cells(each: NodeUsage) -> dict[str, str]:
    def known(value: float | None, words: Callable[[float], str]) -> str:
        return "–" if value is None else words(value)

    return {
        "Node": each.node,
        "Cores": str(each.cores),
        "Busy": units.percent(each.cpu_share),
        "Memory": f"{units.size(each.peak_memory_bytes)} of {units.size(each.memory_total_bytes)}",
        "GPUs": str(each.gpus),
        "GPU busy": known(each.gpu_busy, units.percent),
        "GPU memory": known(each.gpu_peak_memory_bytes, units.size),
        "Sent/step": known(each.sent_bytes_per_step, units.size),
        "Received/step": known(each.received_bytes_per_step, units.size),
        "Energy": known(each.joules, units.energy),
        "Watts": known(each.watts, "{:.0f}".format),
    }
