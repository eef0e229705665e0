"""Compare the predicted efficiency of ResNet-50 on V100 nodes with published figures."""

from dataclasses import dataclass
from typing import Any

import altair
import numpy as np
import vl_convert

from paceline.cluster.catalog import device, link
from paceline.cluster.collectives import Array
from paceline.plan.calibration.calibrate import Steps, from_priors
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.step_time import StepModel
from paceline.plan.search.layout_estimate import estimates
from paceline.profile.named_models import profile_of
from paceline.specs import Layout
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import TrainingPrecision

RESNET = profile_of("resnet50")
REQUIRED = {16: 0.95, 64: 0.89, 256: 0.78, 1024: 0.62}
"""Efficiency by number of nodes, from the papers that Paceline's requirements come from; they name
neither the device nor the network nor the batch."""
NODES = tuple(2**power for power in range(11))
SHOWN = (1, 4, 16, 64, 256, 1024)
RECORD_NODES, RECORD = 272, 0.9162
"""Nodes of 4 V100 with two InfiniBand EDR, 32 images per device: measured by Mikami et al. 2018
(arXiv:1811.05233), read at developer.nvidia.com/blog/sony-breaks-resnet-50-training-record."""
MOST_IMAGES = 256
"""Largest micro-batch."""
DRAWS = 400
COLORS = ("#0072B2", "#009E73", "#CC79A7", "#D55E00")
NVIDIA: dict[tuple[str, str, TrainingPrecision], dict[int, int]] = {
    ("v100-32gb", "nvlink2", "fp16"): {1: 1_156, 8: 8_056},
    ("a100-80gb", "nvlink3", "bf16"): {1: 2_470, 8: 16_621},
}
"""Images/s on 1 and 8 devices of one node in mixed precision, measured
(github.com/NVIDIA/DeepLearningExamples, PyTorch/Classification/ConvNets/resnet50v1.5 @ 291f0d0);
256 images per device are assumed."""


@dataclass(frozen=True)
class Scenario:
    """Nodes of four V100, a network, and a batch that is fixed or grows with the nodes."""

    name: str
    network: str
    interfaces: int
    images_per_device: int | None = None
    batch: int | None = None

    def cluster(self, nodes: int) -> Cluster:
        """Return a cluster of this many nodes."""
        return Cluster(
            nodes=nodes,
            devices_per_node=4,
            device=device("v100-32gb"),
            inside=link("nvlink2"),
            between=link(self.network),
            interfaces_per_node=self.interfaces,
        )

    def seconds_per_image(self, nodes: int, numbers: Coefficients) -> Array:
        """Return the seconds per image, for each row of the planner's coefficients."""
        cluster = self.cluster(nodes)
        batch = self.batch or (self.images_per_device or 1) * cluster.devices
        share = batch // cluster.devices
        layout = Layout(
            replicas=cluster.devices, micro_batch=min(share, MOST_IMAGES), precision="fp16"
        )
        model = StepModel(RESNET, cluster, "fp16", Engine(), numbers)
        return model.times(Layouts.of([layout], batch), float(batch)).total / batch

    def efficiency(self, nodes: int, numbers: Coefficients) -> Array:
        """Return the throughput per node, relative to that of one node."""
        alone = self.seconds_per_image(1, numbers)
        return alone / self.seconds_per_image(nodes, numbers) / nodes

    def interval(self, nodes: int) -> tuple[float, float, float]:
        """Return the efficiency and its 90 % interval over draws of the planner's coefficients."""
        drawn = self.efficiency(nodes, _draws())
        low, high = np.quantile(drawn, [0.05, 0.95])
        return float(self.efficiency(nodes, from_priors().numbers)[0]), float(low), float(high)


SCENARIOS = (
    Scenario("2 × 100 Gbit/s, 32 images per device", "infiniband-edr", 2, images_per_device=32),
    Scenario("25 Gbit/s, 32 images per device", "ethernet-25g", 1, images_per_device=32),
    Scenario("2 × 100 Gbit/s, batch 32,768", "infiniband-edr", 2, batch=32_768),
)


def _draws() -> Coefficients:
    fit = from_priors()
    random = np.random.default_rng(0)
    return Coefficients.from_logs(
        random.multivariate_normal(fit.numbers.logs, fit.covariance, DRAWS)
    )


def single_nodes() -> str:
    """Tabulate one node against NVIDIA's measurements."""
    lines = [
        "| device | devices | predicted images/s (90 % interval) | measured | error |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (name, inside, precision), measured in NVIDIA.items():
        for devices, images in measured.items():
            cluster = Cluster(
                nodes=1,
                devices_per_node=devices,
                device=device(name),
                inside=link(inside),
                between=link("infiniband-edr"),
            )
            layout = Layout(replicas=devices, micro_batch=MOST_IMAGES, precision=precision)
            batch = float(MOST_IMAGES * devices)
            steps = Steps(
                RESNET, cluster, precision, Engine(), Layouts.of([layout], batch), np.array([batch])
            )
            took = estimates(from_priors(), steps, precision)[0].step_seconds
            lines.append(
                f"| {name} | {devices} | {batch / took.value:,.0f}"
                f" ({batch / took.high:,.0f}–{batch / took.low:,.0f}) | {images:,}"
                f" | {batch / took.value / images - 1:+.0%} |"
            )
    return "\n".join(lines)


def efficiencies() -> str:
    """Tabulate the efficiency of each scenario beside the papers'."""
    lines = [
        f"| nodes | V100s | the papers | {' | '.join(each.name for each in SCENARIOS)} |",
        f"| --- | --- | --- |{' --- |' * len(SCENARIOS)}",
    ]
    for nodes in SHOWN:
        cells = []
        for each in SCENARIOS:
            value, low, high = each.interval(nodes)
            cells.append(f"{value:.2f} ({low:.2f}–{high:.2f})" if nodes > 1 else "1")
        papers = f"{REQUIRED[nodes]:.2f}" if nodes in REQUIRED else ""
        lines.append(f"| {nodes:,} | {4 * nodes:,} | {papers} | {' | '.join(cells)} |")
    value, low, high = SCENARIOS[0].interval(RECORD_NODES)
    lines.append(
        f"| {RECORD_NODES} | {4 * RECORD_NODES:,} | {RECORD:.2f} measured (Mikami et al. 2018)"
        f" | {value:.2f} ({low:.2f}–{high:.2f}) | | |"
    )
    return "\n".join(lines)


def steepness() -> str:
    """Tabulate the exponent of the nodes with which lost time, 1/E - 1, grows."""
    nodes = np.array(list(REQUIRED))
    curves = {"the papers": np.array(list(REQUIRED.values()))}
    for each in SCENARIOS:
        curves[each.name] = np.array(
            [float(each.efficiency(int(count), from_priors().numbers)[0]) for count in nodes]
        )
    lines = [
        "| | lost time at 16 nodes | at 1,024 | exponent of the nodes |",
        "|---|---|---|---|",
    ]
    for name, curve in curves.items():
        lost = 1 / curve - 1
        power = np.polyfit(np.log(nodes), np.log(lost), 1)[0]
        lines.append(f"| {name} | {lost[0]:.0%} | {lost[-1]:.0%} | {power:.2f} |")
    return "\n".join(lines)


def picture() -> str:
    """Draw efficiency over nodes, as SVG."""
    rows = []
    for each in SCENARIOS:
        for nodes in NODES:
            value, low, high = each.interval(nodes)
            rows.append(
                {"nodes": nodes, "efficiency": value, "low": low, "high": high, "of": each.name}
            )
    papers = [
        {"nodes": nodes, "efficiency": value, "of": "the papers"}
        for nodes, value in REQUIRED.items()
    ]
    draw: Any = altair  # partly typed only
    names = [*(each.name for each in SCENARIOS), "the papers"]
    x = draw.X("nodes:Q", title="Nodes of four V100").scale(type="log", base=2)
    x = x.axis(values=list(NODES[::2]), format=",d", grid=False)
    y = draw.Y(title="Efficiency relative to one node").scale(domain=[0, 1], nice=False)
    colour = draw.Color("of:N", title=None).scale(domain=names, range=list(COLORS))
    predicted = draw.Chart(draw.Data(values=rows)).encode(x=x, color=colour)
    published = draw.Chart(draw.Data(values=papers)).encode(x=x, color=colour)
    points = {"size": 60, "filled": True}
    chart = (
        draw.layer(
            predicted.mark_area(opacity=0.15).encode(
                y=y.field("low").type("quantitative"), y2="high:Q"
            ),
            predicted.mark_line(strokeWidth=2).encode(y=y.field("efficiency").type("quantitative")),
            published.mark_line(point=points, strokeDash=[4, 3]).encode(
                y=y.field("efficiency").type("quantitative")
            ),
        )
        .properties(width=560, height=300, background="white")
        .configure_legend(
            orient="bottom", columns=2, labelLimit=300, labelFontSize=12, symbolOpacity=1
        )
        .configure_view(stroke=None)
    )
    svg: str = vl_convert.vegalite_to_svg(chart.to_dict())
    return svg
