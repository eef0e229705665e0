"""Tables of docs/papers that the planner computes, from the catalog of devices and links."""

import numpy as np

from benchmarks.planner.pages.recipes import RECIPES, Recipe, cluster, efficiency, planned
from benchmarks.planner.pages.worked_plans import table_of
from paceline.cluster.catalog import link, usual_cluster
from paceline.cluster.collectives import MODELS, Group
from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.cost.energy import step_joules
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.step_time import StepModel
from paceline.plan.engines.paceline import ENGINE
from paceline.plan.search.ranking import search
from paceline.profile.named_models import profile_of
from paceline.specs import Layout
from paceline.specs.measurements.profile import TrainingPrecision
from paceline.specs.plans.estimate import Estimate
from paceline.specs.plans.sync import SyncSettings
from paceline.specs.plans.traffic import ReplicatedPart

PER_NODE = 8
TITLES = {"resnet50": "ResNet-50", "bert": "BERT-Large", "gpt": "GPT-3"}
FEW = {2: (640, 1.88), 4: (330, 3.64), 8: (180, 6.67)}
"""Seconds and speed-up by number of nodes in the papers, where one node takes 1,200 s."""
MANY = (1, 16, 64, 256, 1024)
COMPRESSED = {"topk": "100", "int8": "4", "sign": "32"}
"""The papers' compression ratios."""
WORKERS = (2, 8, 64, 1024)
MEGABYTE, PARAMETERS = 1e6, 25_557_032
NETWORKS = ("infiniband-edr", "ethernet-25g", "ethernet-10g")
PART_NAMES = {
    "computation": ("compute", "recompute"),
    "exposed communication": ("data", "tensor", "transfer"),
    "pipeline bubble": ("bubble",),
    "optimizer": ("optimizer",),
    "host": ("host",),
    "waiting for the slowest": ("jitter",),
}
PRECISIONS: dict[str, TrainingPrecision] = {
    "v100-32gb": "fp16",
    "a100-80gb": "bf16",
    "h100-80gb": "bf16",
}
KILOWATT_HOUR = 3.6e6
Estimates = dict[int, Estimate | None]


def ratios() -> str:
    """Tabulate how many times fewer bytes a worker sends than in an all-reduce."""
    rows = []
    for name, papers in COMPRESSED.items():
        sent = [
            _bytes("allreduce", workers) / _bytes(f"allreduce:compress={name}", workers)
            for workers in WORKERS
        ]
        rows.append([f"`{name}`", f"{papers} ×", *(f"{each:.3g} ×" for each in sent)])
    head = ("`compress`", "papers", *(f"{workers:,} workers" for workers in WORKERS))
    return table_of(head, rows)


def _bytes(sync: str, workers: int) -> float:
    part = ReplicatedPart(workers=workers, parameters=PARAMETERS)
    return SyncSettings.parse(sync).traffic(part).bytes_per_step


def collective_terms() -> str:
    """Tabulate steps and bytes of an all-reduce, by the papers' formulas and the planner's."""
    rows = []
    for nodes in MANY[1:]:
        steps, volume = _group(nodes, latency=1.0), _group(nodes, seconds_per_byte=1.0)
        nothing, one = np.zeros(()), np.ones(())
        ring = 2 * float(MODELS["reduce-scatter"](nothing, steps))
        rows.append(
            [
                f"{nodes:,}",
                f"{2 * (nodes - 1):,}",
                f"{ring:,.0f}",
                f"{2 * np.log2(nodes):.0f}",
                f"{float(MODELS['all-reduce'](nothing, steps)):.0f}",
                f"{2 * (nodes - 1) / nodes:.3f}",
                f"{float(MODELS['all-reduce'](one, volume)):.3f}",
            ]
        )
    head = (
        "nodes",
        "ring: 2(n−1) steps",
        "planner",
        "tree: 2·log₂ n steps",
        "planner",
        "volume per node: 2(n−1)/n",
        "planner",
    )
    return table_of(head, rows)


def _group(nodes: int, latency: float = 0.0, seconds_per_byte: float = 0.0) -> Group:
    """Return one device on each of these nodes, with no cost but the given one."""
    rate = np.asarray(1 / seconds_per_byte if seconds_per_byte else np.inf)
    return Group(
        members=np.asarray(float(nodes)),
        per_node=np.ones(()),
        inside_latency=np.zeros(()),
        inside_rate=np.asarray(np.inf),
        between_latency=np.asarray(latency),
        between_rate=rate,
        call=np.zeros(()),
    )


def overlap() -> str:
    """Tabulate the gradient all-reduce on 16 nodes, and what backward leaves of it exposed."""
    rows = []
    for name in ("resnet50", "bert"):
        recipe = RECIPES[name]
        for network in NETWORKS:
            whole, left, compute = _communication(recipe, network)
            rows.append(
                [
                    TITLES[name],
                    network,
                    f"{1e3 * compute:.0f}",
                    f"{1e3 * whole:.0f}",
                    f"{1e3 * left:.0f}",
                    f"{left / whole:.0%}".replace("%", " %"),
                ]
            )
    head = (
        "model",
        "one interface per device",
        "computation, ms",
        "all-reduce, ms",
        "exposed, ms",
        "left exposed",
    )
    return table_of(head, rows)


def _communication(recipe: Recipe, network: str) -> tuple[float, float, float]:
    """Return the seconds of the all-reduce, of its exposed part and of the computation."""
    nodes = cluster(recipe.device, 16 * PER_NODE).model_copy(update={"between": link(network)})
    batch = recipe.per_device * nodes.devices
    layout = Layout(
        replicas=nodes.devices, micro_batch=recipe.per_device, precision=recipe.precision
    )
    profile = profile_of(recipe.model)
    engine = ENGINE.engine(profile, nodes, recipe.precision)
    found = []
    for overlapped in (False, True):
        kind = engine.model_copy(update={"overlap_data": overlapped})
        model = StepModel(profile, nodes, recipe.precision, kind, from_priors().numbers)
        found.append(model.times(Layouts.of([layout], batch), float(batch)))
    return float(found[0].data[0]), float(found[1].data[0]), float(found[1].compute[0])


def few_nodes() -> str:
    """Tabulate speed-ups on 2, 4 and 8 nodes, strong and weak, on two networks."""
    curves = []
    for name in ("resnet50", "bert"):
        for network in (NETWORKS[0], NETWORKS[2]):
            for kind, (found, batches) in _curves(RECIPES[name], (1, *FEW), network).items():
                rates = {nodes: batches[nodes] / _value(found[nodes]) for nodes in (1, *FEW)}
                curves.append(
                    [
                        f"{TITLES[name]}, {kind}, {network}",
                        *(f"{rates[nodes] / rates[1]:.2f} ×" for nodes in FEW),
                    ]
                )
    papers = ["papers (1,200, 640, 330, 180 s)", *(f"{each:.2f} ×" for _, each in FEW.values())]
    return table_of(("", *(f"{nodes} nodes" for nodes in FEW)), [papers, *curves])


def many_nodes() -> str:
    """Tabulate the efficiency on 16 to 1,024 nodes of eight devices."""
    rows = []
    for name, title in TITLES.items():
        recipe = RECIPES[name]
        curves = _curves(recipe, MANY)
        held = [n for n in MANY if all(found[n] for found, _ in curves.values())]
        for nodes in MANY[1:]:
            cells = [
                f"{efficiency(found, batches, nodes, held[0]):.2f}"
                if nodes in held
                else "does not fit"
                for found, batches in curves.values()
            ]
            of = "1 node" if held[0] == 1 else f"{held[0]} nodes"
            rows.append([title, f"{nodes:,}", f"{recipe.papers[nodes]:.2f}", *cells, of])
    head = ("model", "nodes", "papers", "batch fixed", "batch grows", "relative to")
    return table_of(head, rows)


def step_parts() -> str:
    """Tabulate where a step's time goes, with a fixed batch."""
    rows = []
    for name, title in TITLES.items():
        found, _ = _curves(RECIPES[name], MANY)["batch fixed"]
        for nodes, estimate in found.items():
            if estimate is not None:
                total = estimate.step_seconds.value
                shares = [
                    sum(estimate.seconds[part] for part in parts) / total
                    for parts in PART_NAMES.values()
                ]
                cells = [f"{each:.1%}".replace("%", " %") for each in shares]
                rows.append([title, f"{nodes:,}", f"{total:.3g}", *cells])
    return table_of(("model", "nodes", "step, s", *PART_NAMES), rows)


def gpus() -> str:
    """Tabulate the papers' other two figures."""
    recipe = RECIPES["resnet50"]
    devices = (1, 16, 1024)
    cells = []
    for batches in (
        dict.fromkeys(devices, recipe.batch),
        {each: recipe.per_device * each for each in devices},
    ):
        found = {each: planned(recipe, each, batches[each]) for each in devices}
        hours = 9 / 16 / efficiency(found, batches, 16, 1)
        share = 100 * efficiency(found, batches, 1024, 1)
        cells.append((f"{share:.0f} %", f"{60 * hours:.0f} min"))
    (fixed, short), (growing, weak) = cells
    rows = [
        ["ResNet-50 on 1,024 V100", "90.7 %", fixed, growing],
        ["9 h on one GPU, on 16 GPUs (ResNet-50 on V100s)", "under 1 h", short, weak],
    ]
    return table_of(("", "papers", "batch fixed", "batch grows"), rows)


def precision() -> str:
    """Tabulate energy and time of a million samples on one node, in fp32 and in 16 bits."""
    rows = []
    for name in ("resnet50", "bert"):
        recipe = RECIPES[name]
        profile = profile_of(recipe.model)
        batch = recipe.per_device * PER_NODE
        for device, short in PRECISIONS.items():
            nodes = usual_cluster(device, 1)
            spent = []
            both: tuple[TrainingPrecision, TrainingPrecision] = ("fp32", short)
            for each in both:
                found = search(profile, nodes, batch, from_priors(), each)
                (best,) = found.best(from_priors(), 1, each)
                used = step_joules(best, nodes)
                assert used is not None
                spent.append((used * 1e6 / batch / KILOWATT_HOUR, best.step_seconds.value / batch))
            (long_energy, long_time), (energy, took) = spent
            rows.append(
                [
                    TITLES[name],
                    device,
                    f"{long_energy:.3g}",
                    f"{energy:.3g} ({short})",
                    f"{energy / long_energy - 1:+.0%}".replace("%", " %").replace("-", "−"),
                    f"{took / long_time - 1:+.0%}".replace("%", " %").replace("-", "−"),
                ]
            )
    head = ("model", "eight devices", "kWh, fp32", "kWh, 16 bits", "energy", "time")
    return table_of(head, rows)


def _curves(
    recipe: Recipe, nodes: tuple[int, ...], network: str | None = None
) -> dict[str, tuple[Estimates, dict[int, int]]]:
    """Return the fastest layouts and the batches by nodes, with a fixed and a growing batch."""
    kinds = {
        "batch fixed": dict.fromkeys(nodes, recipe.batch),
        "batch grows": {each: recipe.per_device * PER_NODE * each for each in nodes},
    }
    return {
        kind: (
            {each: planned(recipe, PER_NODE * each, batches[each], network) for each in nodes},
            batches,
        )
        for kind, batches in kinds.items()
    }


def _value(estimate: Estimate | None) -> float:
    assert estimate is not None
    return estimate.step_seconds.value
