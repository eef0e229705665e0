"""Measured configurations in one form, whatever table they come from."""

import csv
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from paceline.cluster.catalog import device, link, usual_cluster
from paceline.plan.calibration.calibrate import Steps
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import RECOMPUTE, Layouts
from paceline.plan.cost.memory import memory
from paceline.profile.families import Decoder, decoder
from paceline.specs import PacelineError
from paceline.specs.measurements.cluster import Cluster, Link

GIB = 2.0**30
HEADER = (
    "device,gpus,gpus_per_node,inter_node_gbps_per_gpu,hidden,heads,layers,vocab,seq,global_batch,"
    "micro_batch,tp,pp,dp,zero,recompute,precision,step_s,mem_gb,oom,group"
)
MEASURED = {"step_s", "mem_gb", "oom"}
NETWORK_GBPS = {"v100": 12.5, "a100": 200.0}
"""Of one device where a row does not say; 400 for all later ones."""
MEGATRON = Engine(
    overlap_data=False,
    loss_in_place=True,
    weight_bytes=2,
    gathered_bytes=2,
    gradient_bytes=4,
    state_bytes=12,
)
"""Weights in 16 bits, gradients and the optimizer's copy in 32 (Megatron-LM)."""
MEGATRON_CORE = MEGATRON.model_copy(
    update={"overlap_data": True, "overlap_tensor": "both", "overlap_transfer": True}
)


CONTEXT_BYTES = 1_500_000_000
"""Of the driver, the communication library and the allocator, in case files: assumed."""


@dataclass(frozen=True)
class Case:
    """One row."""

    key: str
    """SHA-256 of its configuration: no time enters."""
    device: str
    gpus: int
    gpus_per_node: int
    network_gbps: float
    """Between nodes, of one device."""
    shape: Decoder
    batch: int
    micro_batch: int
    tensor: int = 1
    pipeline: int = 1
    chunks: int = 1
    shards: int = 1
    replicas: int = 1
    reshard: bool = True
    optimizer_shards: bool = False
    recompute: str = "none"
    sequence: bool = False
    precision: str = "bf16"
    engine: Engine = field(default_factory=Engine)
    step_seconds: float | None = None
    memory_bytes: float | None = None
    out_of_memory: bool = False
    group: str | None = None

    @property
    def family(self) -> str:
        """What the null model has a rate for: device and precision."""
        return f"{self.device} {self.precision}"

    @property
    def cluster(self) -> Cluster:
        """Enough nodes of its kind."""
        network = Link(
            name="network",
            latency_seconds=link("infiniband-hdr").latency_seconds,
            bytes_per_second=self.network_gbps / 8 * 1e9,
            source="the table",
        )
        usual = usual_cluster(self.device, -(-self.gpus // self.gpus_per_node))
        return usual.model_copy(update={"devices_per_node": self.gpus_per_node, "between": network})


def key_of(row: dict[str, str], measured: Iterable[str]) -> str:
    """The row's key, by which calibration rows are chosen."""
    left = sorted((name, value) for name, value in row.items() if name not in set(measured))
    return hashlib.sha256(repr(left).encode()).hexdigest()


def rows_of(path: Path) -> list[dict[str, str]]:
    """A CSV whose first lines may be comments."""
    with path.open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def chosen(cases: Sequence[Case]) -> set[str]:
    """Keys of the calibration rows: the first by key, at most 30 and at most a third."""
    keys = sorted({each.key for each in cases})
    return set(keys[: min(30, len(keys) // 3)])


def grouped(cases: Sequence[Case]) -> list[tuple[list[int], Steps]]:
    """Rows that differ only in layout and batch are computed together; with their numbers."""
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, each in enumerate(cases):
        same = (
            each.shape,
            each.device,
            each.gpus_per_node,
            each.network_gbps,
            each.precision,
            each.engine,
        )
        alike[same].append(index)
    return [(members, _steps([cases[each] for each in members])) for members in alike.values()]


def _steps(cases: Sequence[Case]) -> Steps:
    first = cases[0]
    columns = [
        (
            each.replicas,
            each.shards,
            each.tensor,
            each.pipeline,
            each.micro_batch,
            RECOMPUTE.index(each.recompute),
            each.chunks,
            each.sequence,
            each.reshard,
            each.optimizer_shards,
        )
        for each in cases
    ]
    return Steps(
        profile=decoder(first.shape),
        cluster=first.cluster,
        precision=first.precision,
        engine=first.engine,
        layouts=Layouts(*np.array(columns, dtype=np.float64).T),
        batch=np.array([float(each.batch) for each in cases]),
        seconds=np.array([each.step_seconds or np.nan for each in cases]),
    )


def read_cases(path: Path) -> list[Case]:
    """A case file with the columns of the issue; what is blank gets the defaults below."""
    rows = rows_of(path)
    if not rows or (missing := set(HEADER.split(",")) - rows[0].keys()):
        raise PacelineError(
            f"{path} has no rows" if not rows else f"{path} lacks {', '.join(sorted(missing))}",
            fix=f"write a CSV with the columns {HEADER}",
        )
    return [_case(row) if row["recompute"] else _with_room(_case(row)) for row in rows]


def _with_room(case: Case) -> Case:
    """With the least recomputation that lets it fit, for rows that do not say."""
    for mode in ("none", "attention", "block"):
        tried = replace(case, recompute=mode)
        steps = _steps([tried])
        held = memory(steps.profile, steps.layouts, steps.batch, steps.engine).total[0]
        if held <= steps.cluster.device.memory_bytes:
            return tried
    return tried


def _case(row: dict[str, str]) -> Case:
    name = _device(row["device"])
    kind = name.split("-")[0]
    old = kind in ("v100", "a100")
    tensor, pipeline = int(row["tp"] or 1), int(row["pp"] or 1)
    gpus = int(row["gpus"])
    data = int(row["dp"] or gpus // (tensor * pipeline))
    zero = int(float(row["zero"] or 0))
    gigabytes = row["mem_gb"]
    precision = _precision(row["precision"])
    shape = Decoder(
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        seq=int(row["seq"] or 2048),
        vocab=int(row["vocab"] or 51200),
        attention="whole" if old else "fused",
        dropout=old,
    )
    return Case(
        key=key_of(row, MEASURED),
        device=name,
        gpus=gpus,
        gpus_per_node=int(row["gpus_per_node"] or 8),
        network_gbps=float(row["inter_node_gbps_per_gpu"] or NETWORK_GBPS.get(kind, 400.0)),
        shape=shape,
        batch=int(row["global_batch"]),
        micro_batch=int(row["micro_batch"] or 1),
        tensor=tensor,
        pipeline=pipeline,
        shards=data if zero == 3 else 1,
        replicas=1 if zero == 3 else data,
        optimizer_shards=zero in (1, 2),
        recompute=_recompute(row["recompute"]),
        sequence=False,
        precision=precision,
        engine=MEGATRON.model_copy(
            update={
                "overlap_data": not old or zero == 3,
                "gradient_bytes": 2 if precision == "fp16" else 4,
                "base_bytes": CONTEXT_BYTES,
            }
        ),
        step_seconds=float(row["step_s"]) if row["step_s"] else None,
        memory_bytes=float(gigabytes) * GIB if gigabytes else None,
        out_of_memory=row["oom"].lower() in ("1", "true", "yes"),
        group=row["group"] or None,
    )


def _device(written: str) -> str:
    name = written.lower().replace("_", "-").replace(" ", "-")
    if name in ("a100", "h100"):
        return f"{name}-80gb"
    if name == "v100":
        return "v100-32gb"
    return device(name).name


def _recompute(written: str) -> str:
    word = written.lower()
    if word in ("full", "block", "1", "true", "yes"):
        return "block"
    return "attention" if word == "selective" else "none"


def _precision(written: str) -> str:
    word = written.lower() or "bf16"
    for name in ("fp8", "fp4", "fp16", "bf16", "fp32"):
        if name in word:
            return name
    raise PacelineError(f"no such precision: {written}", fix="write fp32, fp16, bf16, fp8 or fp4")
