"""Compute the tables and the picture of docs/worked-plans.md. All are predictions; nothing runs.

Without `--write` it prints the tables; with it they replace those on the page, and the picture.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.common.output import argument_parser
from benchmarks.planner.pages.resnet import efficiencies, picture, single_nodes, steepness
from benchmarks.planner.score.tables import MOSAIC
from paceline.cluster.catalog import usual_cluster
from paceline.plan.calibration.calibrate import Steps, from_priors
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.step_time import StepModel
from paceline.plan.search.layout_estimate import estimates
from paceline.plan.search.ranking import Found, search
from paceline.profile.named_models import profile_of
from paceline.specs import Layout
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.plans.estimate import Estimate

DOCS = Path(__file__).parents[3] / "docs"
PAGE, PICTURE = DOCS / "worked-plans.md", DOCS / "pictures" / "resnet50-scaling.svg"
LLAMA, SEQ = profile_of("llama2-7b"), 4096
BATCH = 1024
TOKENS = 2e12
"""Training tokens of Llama 2 (Touvron et al. 2023)."""
DEVICES = (16, 64, 256, 1024)
BY_HAND = 64
PARTS = {
    "compute": "matrix products and operations between them",
    "recompute": "recomputation",
    "data": "exposed communication",
    "optimizer": "optimizer",
    "host": "host",
    "jitter": "waiting for the slowest worker",
}
MEASURED = {8: 10_643, 128: 10_475, 256: 10_119, 512: 9_670}
"""Measured tokens/s per device, by the number of H100s: MPT-7B, 2,048 tokens, micro-batches of 6,
FSDP (github.com/mosaicml/llm-foundry, scripts/train/benchmarking/README.md @ 8c8dd48)."""
MPT = profile_of("gpt: layers=32 width=4096 heads=32 seq=2048 vocab=50368")
MPT_SEQ, MPT_MICRO_BATCH = 2048, 6


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    options = parser.parse_args()
    found = {devices: search(LLAMA, h100s(devices), BATCH, from_priors()) for devices in DEVICES}
    best = {devices: each.best(from_priors(), 1, "bf16")[0] for devices, each in found.items()}
    tables = {
        "plans": plans(found, best),
        "parts": parts(found, best),
        "by-hand": by_hand(found[BY_HAND], best[BY_HAND]),
        "others": others(found),
        "measured-7b": measured_7b(),
        "single-nodes": single_nodes(),
        "efficiency": efficiencies(),
        "steepness": steepness(),
    }
    put_out(tables, PAGE, "worked", write=options.write)
    if options.write:
        PICTURE.write_text(picture())


def put_out(tables: Mapping[str, str], page: Path, topic: str, *, write: bool) -> None:
    """Write tables between their markers on the page, or print them."""
    for name, table in tables.items():
        if write:
            replaced_in(page, f"{topic}: {name}", table)
        else:
            print(f"## {name}\n\n{table}\n")


def replaced_in(page: Path, name: str, table: str) -> None:
    """Replace a table between its markers on the page."""
    begin, end = f"<!-- {name} -->\n", "<!-- end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    text = page.read_text()
    if not pattern.search(text):
        raise SystemExit(f"{page.name} has no markers for the table {name}")
    page.write_text(pattern.sub(lambda _: f"{begin}\n{table}\n\n{end}", text))


def h100s(devices: int) -> Cluster:
    """Return nodes of eight H100s with 400 Gbit/s per device."""
    return usual_cluster("h100-80gb", devices // 8)


def plans(found: dict[int, Found], best: dict[int, Estimate]) -> str:
    """Tabulate the fastest layout for each number of devices."""
    peak = h100s(8).device.peak("bf16")
    first = BATCH / best[DEVICES[0]].step_seconds.value / DEVICES[0]
    rows = []
    for devices, estimate in best.items():
        took = estimate.step_seconds
        each = BATCH / took.value / devices
        rows.append(
            [
                f"{devices:,}",
                f"{len(found[devices].seconds):,} of {found[devices].scored:,}",
                words(estimate.layout),
                f"{took.value:.2f} ({took.low:.2f}–{took.high:.2f})",
                f"{each * SEQ:,.0f}",
                f"{each * LLAMA.flops / peak:.0%}",
                f"{estimate.peak_bytes.value / 1e9:.0f}",
                f"{each / first:.2f}",
                f"{TOKENS / (BATCH * SEQ) * took.value / 86400:,.1f}",
            ]
        )
    head = (
        "H100s",
        "layouts that fit",
        "fastest",
        "step, s (90 % interval)",
        "tokens/s per device",
        "MFU",
        "GB per device",
        "efficiency",
        "days for 2 T tokens",
    )
    return table_of(head, rows)


def parts(found: dict[int, Found], best: dict[int, Estimate]) -> str:
    """Tabulate the fastest layouts' step breakdown, and their communication without overlap."""
    rows = [
        [title, *(f"{estimate.seconds[key]:.3f}" for estimate in best.values())]
        for key, title in PARTS.items()
    ]
    bare = [bare_communication(found[devices], best[devices]) for devices in best]
    rows.append(["(communication without overlap)", *(f"({each:.3f})" for each in bare)])
    return table_of(("seconds per step", *(f"{each:,} H100s" for each in best)), rows)


def by_hand(found: Found, estimate: Estimate) -> str:
    """Tabulate a step of a sharded layout by hand, beside the planner."""
    cluster, engine, numbers = found.steps.cluster, found.steps.engine, from_priors().numbers
    layout, chip = estimate.layout, cluster.device
    share = BATCH / layout.workers
    flops = {True: 0.0, False: 0.0}
    for layer in LLAMA.layers:
        for product in layer.matmuls:
            flops[product.attention] += 3 * layer.count * product.flops
    rate = chip.peak("bf16") * chip.matmul_efficiency * chip.sustained
    products = flops[False] * share / rate
    attention = flops[True] * share / (rate * float(numbers.attention_rate))
    rounds = share / (layout.micro_batch or 1)
    moved = (2 * rounds * engine.gathered_bytes + engine.gradient_bytes) * LLAMA.parameters
    moved *= (layout.shards - 1) / layout.shards
    line = cluster.devices_per_node * cluster.network_bytes_per_second
    network = line * float(numbers.between_rate * numbers.bucket_rate)
    compute = estimate.seconds["compute"]
    rows = [
        [
            "matrix products",
            f"{flops[False]:.3g} FLOPs per sample × {share:.0f} samples / {rate:.3g} FLOP/s",
            f"{products:.2f}",
        ],
        [
            "attention",
            f"{flops[True]:.3g} × {share:.0f} / {float(numbers.attention_rate):.2f} of that rate",
            f"{attention:.2f}",
        ],
        [
            "other computation",
            "memory traffic, idle units: the planner's computation less the two above",
            f"{compute - products - attention:.2f}",
        ],
        [
            "communication without overlap",
            f"(2 × {rounds:.0f} all-gathers of {engine.gathered_bytes} bytes + 1 reduce-scatter of"
            f" {engine.gradient_bytes}) per parameter"
            f" = {moved / 1e9:.0f} GB / {network / 1e9:.0f} GB/s",
            f"{moved / network:.2f}; planner {bare_communication(found, estimate):.2f}",
        ],
    ]
    return table_of(("part", "arithmetic", "seconds"), rows)


def bare_communication(found: Found, estimate: Estimate) -> float:
    """Return the communication seconds of the same layout without overlap."""
    steps = found.steps
    engine = steps.engine.model_copy(update={"overlap_data": False})
    model = StepModel(steps.profile, steps.cluster, "bf16", engine, from_priors().numbers)
    return float(model.times(Layouts.of([estimate.layout], BATCH), float(BATCH)).data[0])


def others(found: dict[int, Found]) -> str:
    """Tabulate the fastest layout of each kind, relative to the fastest of all."""
    rows = []
    for devices, each in found.items():
        layouts = each.steps.layouts
        kinds = {
            "neither tensor nor pipeline": (layouts.tensor == 1) & (layouts.pipeline == 1),
            "tensor 2": (layouts.tensor == 2) & (layouts.pipeline == 1),
            "tensor 8": (layouts.tensor == 8) & (layouts.pipeline == 1),
            "pipeline 2": (layouts.tensor == 1) & (layouts.pipeline == 2),
            "pipeline 8": (layouts.tensor == 1) & (layouts.pipeline == 8),
            "block recomputation": layouts.recompute == 3,
        }
        row = [f"{devices:,}"]
        for chosen in kinds.values():
            if chosen.any():
                seconds = each.seconds[chosen].min()
                row.append(f"+{seconds / each.seconds[0] - 1:.1%}")
            else:
                row.append("none fits")
        rows.append(row)
    return table_of(("H100s", *kinds), rows)


def measured_7b() -> str:
    """Tabulate predictions against published measurements."""
    rows = []
    for devices, measured in MEASURED.items():
        layout = Layout(shards=devices, micro_batch=MPT_MICRO_BATCH, precision="bf16")
        batch = float(devices * MPT_MICRO_BATCH)
        steps = Steps(
            MPT, h100s(devices), "bf16", MOSAIC, Layouts.of([layout], batch), np.array([batch])
        )
        took = estimates(from_priors(), steps, "bf16")[0].step_seconds
        tokens = MPT_MICRO_BATCH * MPT_SEQ
        rows.append(
            [
                f"{devices}",
                f"{tokens / took.value:,.0f} ({tokens / took.high:,.0f}–{tokens / took.low:,.0f})",
                f"{measured:,}",
                f"{tokens / took.value / measured - 1:+.0%}",
            ]
        )
    head = ("H100s", "predicted tokens/s per device (90 % interval)", "measured", "error")
    return table_of(head, rows)


def words(layout: Layout) -> str:
    degrees = [
        f"{degree} {name}"
        for degree, name in (
            (layout.replicas, "replicas"),
            (layout.shards, "shards"),
            (layout.tensor, "tensor"),
            (layout.pipeline, "pipeline"),
        )
        if degree > 1
    ]
    again = "" if layout.recompute == "none" else f", recompute {layout.recompute}"
    return f"{' × '.join(degrees)}, micro-batch {layout.micro_batch}{again}"


def table_of(head: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
