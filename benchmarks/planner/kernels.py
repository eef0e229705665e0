"""How well measured kernels predict sizes that were not measured, on this machine's device.

The device is probed as `paceline probe` does it, its kernels included. Then the times of other
sizes are predicted and measured: the sizes below were chosen before anything was measured. Three
predictions: the planner's formulas with the probed rates, the measured table, and the null model,
one constant rate: the median over the table's points of that kernel.
"""

import datetime
import json
from collections.abc import Iterator, Sequence
from statistics import mean, median
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import nn
from torch.utils.data import TensorDataset

import paceline
from benchmarks.common.output import argument_parser, table
from paceline.cluster.probe.assemble import cluster_of
from paceline.comm.device_kind import device_kind
from paceline.parallel.dry_run.model_profile import profile_of
from paceline.parallel.measured_model import measured as model_measured
from paceline.plan.calibration.priors import priors_for
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.compute import Compute
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.kernels.matrix_products import MatrixProducts
from paceline.plan.cost.layout_table import Layouts
from paceline.specs import Layout, Placement
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.kernels import KernelSource, KernelTable
from paceline.specs.measurements.probe import Probed
from paceline.specs.measurements.profile import Matmul, TrainingPrecision
from paceline.train.probing.device_clock import DeviceClock
from paceline.train.probing.device_measurement import measured as device_measured
from paceline.train.probing.kernel_grids import KernelCase, kernel_cases, kernel_grids

LINEAR = (
    (200, 384, 1152),
    (384, 384, 1536),
    (1000, 768, 768),
    (2048, 320, 640),
    (128, 1536, 384),
    (700, 500, 300),
    (512, 1000, 250),
    (96, 128, 1024),
    (333, 111, 777),
    (8192, 512, 512),
    (300, 5000, 200),
    (32, 300, 3000),
)
"""Rows, inner and columns; the last three lie outside the grid of a CPU."""
ATTENTION = (
    (6, 128, 64),
    (12, 200, 64),
    (32, 512, 48),
    (8, 900, 64),
    (24, 128, 80),
    (8, 256, 100),
    (2, 2048, 64),
)
"""Heads of all samples, tokens, width of a head; the last one lies outside."""
WIDTH, HEADS, TOKENS, SAMPLES, BLOCKS = 384, 6, 256, 4, 3
"""A small GPT."""
PRECISIONS: tuple[TrainingPrecision, ...] = ("fp32", "bf16")


class Row(NamedTuple):
    """One size: its measured seconds, and the predictions."""

    what: str
    precision: str
    measured: float
    formula: float
    kernels: float
    null: float


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="time to measure kernels")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = device_kind().bind(Placement())
    plain, probed = _probed(device, options.seconds)
    rows = [*_products(plain, probed, device), *_blocks(plain, probed, device)]
    if options.json:
        print(json.dumps([each._asdict() for each in rows], indent=2))
    else:
        _show(rows)


def _probed(device: torch.device, seconds: float) -> tuple[Cluster, Cluster]:
    """Return this device without and with its kernels."""
    worker = device_measured(Placement(), device)
    found = Probed(nodes=1, devices_per_node=1, backend="none", interface="none", workers=(worker,))
    plain = cluster_of(found, datetime.date.today())
    grids = kernel_grids(kernel_cases(device), device, worker.memory_bytes, seconds)
    source = KernelSource(device=worker.device, versions=(), neighbors=1)
    kernels = KernelTable(source=source, measured_on="", grids=tuple(grids))
    return plain, plain.model_copy(update={"kernels": kernels})


def _products(plain: Cluster, probed: Cluster, device: torch.device) -> Iterator[Row]:
    clock, one = DeviceClock(device), Layouts.of([Layout()], 1)
    numbers = Coefficients.prior(priors_for(plain))
    for precision in PRECISIONS:
        products = [MatrixProducts(each, precision, Engine(), numbers) for each in (plain, probed)]
        for case, sizes in _cases(precision):
            rate = _constant_rate(probed, case)
            if rate is None:
                continue
            calls = case.calls(sizes, device)
            seconds = clock.seconds(calls.forward) + sum(map(clock.seconds, calls.backward))
            matmuls = _matmuls(case, sizes)
            formula, kernels = (
                sum(
                    float(each[0])
                    for matmul in matmuls
                    for each in model.seconds(matmul, one, case.kernel == "attention")
                )
                for model in products
            )
            null = 3 * sum(each.flops for each in matmuls) / rate
            shape = " x ".join(map(str, sizes)) + (", causal" if case.causal else "")
            yield Row(f"{case.kernel} {shape}", precision, seconds, formula, kernels, null)


def _cases(precision: str) -> Iterator[tuple[KernelCase, tuple[int, int, int]]]:
    for case in kernel_cases(torch.device("cpu")):
        if case.precision == precision and case.fused:
            for sizes in LINEAR if case.kernel == "linear" else ATTENTION:
                yield case, sizes


def _matmuls(case: KernelCase, sizes: tuple[int, int, int]) -> tuple[Matmul, ...]:
    """Return the products of a kernel as a profile has them."""
    if case.kernel == "linear":
        rows, inner, columns = sizes
        return (Matmul(rows=rows, inner=inner, columns=columns, sliced="whole"),)
    heads, tokens, width = sizes
    scores = Matmul(
        rows=tokens,
        inner=width,
        columns=tokens,
        repeats=heads,
        computed=0.5 if case.causal else 1.0,
        sliced="whole",
        attention=True,
    )
    return scores, scores.model_copy(update={"inner": tokens, "columns": width})


def _constant_rate(probed: Cluster, case: KernelCase) -> float | None:
    """Return the median FLOP/s, forward and backward, of the points of a kernel's grid; None if
    there was no time to measure it."""
    assert probed.kernels is not None
    for grid in probed.kernels.grids:
        if (grid.kernel, grid.precision, grid.causal, grid.fused) == (
            case.kernel,
            case.precision,
            case.causal,
            case.fused,
        ):
            one, two, three = np.meshgrid(*grid.axes, indexing="ij")
            work = 2.0 * one * two * three
            if grid.kernel == "attention":
                work = 2.0 * work * two * (0.5 if grid.causal else 1.0)
            seconds = np.add(grid.forward_seconds, grid.backward_seconds)
            return float(np.median(3.0 * work.ravel() / seconds))
    return None


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        samples, tokens, _ = stream.shape
        query, key, value = (
            part.view(samples, tokens, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.into(self.norm_attention(stream)).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.out(mixed.transpose(1, 2).reshape(samples, tokens, WIDTH))
        result: torch.Tensor = stream + self.feed(self.norm_feed(stream))
        return result


class _Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.blocks = nn.Sequential(*(_Block() for _ in range(BLOCKS)))
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.blocks(self.embed(text)))
        return logits


def _training() -> paceline.Training:
    text = torch.randint(256, (SAMPLES, TOKENS))
    return paceline.Training(
        model=_Gpt,
        loss=lambda output, target: nn.functional.cross_entropy(
            output.flatten(0, 1), target.flatten()
        ),
        data=TensorDataset(text, text),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=SAMPLES,
        steps=1,
    )


def _blocks(plain: Cluster, probed: Cluster, device: torch.device) -> Iterator[Row]:
    """Yield one whole block, forward and backward."""
    training, numbers = _training(), Coefficients.prior(priors_for(plain))
    one = Layouts.of([Layout(micro_batch=SAMPLES)], SAMPLES)
    for precision in PRECISIONS:
        layout = Layout.model_validate({"precision": precision})
        block = profile_of(training, "GPT", layout).block
        times = model_measured(training, layout, device=device, budget_seconds=5.0)
        at = times.samples.index(SAMPLES)
        seconds = (times.parts[at][1] + times.parts[at][4]) / BLOCKS
        formula, kernels = (
            float(Compute(each, precision, Engine(), numbers).passes(block, one).all[0])
            for each in (plain, probed)
        )
        rate = _constant_rate(probed, next(each for each, _ in _cases(precision)))
        if rate is None:
            continue
        null = SAMPLES * (block.forward_flops + block.backward_flops) / rate
        yield Row(
            f"a block of {WIDTH}, {SAMPLES} x {TOKENS} tokens",
            precision,
            seconds,
            formula,
            kernels,
            null,
        )


def _show(rows: Sequence[Row]) -> None:
    shown = table("Held-out kernels", "", "", "measured ms", "formula", "kernels", "null", texts=2)
    for row in rows:
        errors = (f"{each / row.measured - 1:+.0%}" for each in row[3:])
        shown.add_row(row.what, row.precision, f"{1e3 * row.measured:.2f}", *errors)
    for name in dict.fromkeys(each.what.split()[0] for each in rows):
        for precision in PRECISIONS:
            mine = [
                [abs(each / row.measured - 1) for each in row[3:]]
                for row in rows
                if row.what.split()[0] == name and row.precision == precision
            ]
            for how, of in (("mean", mean), ("median", median)):
                columns = (f"{of(each):.1%}" for each in zip(*mine, strict=True))
                shown.add_row(f"{name}, {how} error", precision, "", *columns)
    Console().print(shown)


if __name__ == "__main__":
    main()
