"""Measured configurations in one form, whatever table they come from."""

import csv
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paceline.cluster.catalog import link, usual_cluster
from paceline.plan.calibration.calibrate import Steps
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.engine_kind import ENGINES, EngineKind
from paceline.plan.cost.layout_table import RECOMPUTE, Layouts
from paceline.plan.engines.deepspeed import ZeroThree, ZeroTwo
from paceline.profile.families import Decoder, Experts, decoder, experts
from paceline.specs.measurements.cluster import Cluster, Link
from paceline.specs.measurements.profile import Profile

DATA = Path(__file__).parents[3].parent / "shared" / "data" / "published"
"""Published tables, which are not part of the project."""
GIB = 2.0**30
MOST_ROWS = 30
"""Of a table, for calibration."""


def known_engine(name: str, precision: str = "bf16", zero: int = 1) -> Engine:
    """The planner's engine of that name, for models trained by Adam; `zero`: DeepSpeed's stage."""
    stages: dict[int, EngineKind] = {2: ZeroTwo(), 3: ZeroThree()}
    kind = stages.get(zero) if name == "deepspeed" else None
    return (kind or ENGINES.get(name)).engine(_ADAM, usual_cluster("a100-80gb", 1), precision)


_ADAM = decoder(Decoder(layers=1, hidden=128, heads=1, seq=128, vocab=128))
MEGATRON_CORE = known_engine("megatron").model_copy(update={"base_bytes": 0})
"""All communication overlapped, as in NVIDIA's own tables. Their memory is what was allocated,
without the driver's."""
MEGATRON = MEGATRON_CORE.model_copy(
    update={"overlap_data": False, "overlap_tensor": "no", "overlap_transfer": False}
)
"""None of it."""


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
    """Both with context-parallel workers, as in `Layouts`."""
    context: int = 1
    expert: int = 1
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
    def profile(self) -> Profile:
        """The costs of its model."""
        return experts(self.shape) if isinstance(self.shape, Experts) else decoder(self.shape)

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
    """Keys of the calibration rows: the first by key, at most 30 rows and at most a third."""
    rows = Counter(each.key for each in cases)
    keys: set[str] = set()
    left = min(MOST_ROWS, len(rows) // 3)
    for key in sorted(rows):
        if rows[key] > left:
            break
        keys.add(key)
        left -= rows[key]
    return keys


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
    return [(members, steps_of([cases[each] for each in members])) for members in alike.values()]


def steps_of(cases: Sequence[Case]) -> Steps:
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
            each.context,
            each.expert,
        )
        for each in cases
    ]
    table = np.array(columns, dtype=np.float64).T
    more = (table[-2:] > 1).any()
    return Steps(
        profile=first.profile,
        cluster=first.cluster,
        precision=first.precision,
        engine=first.engine,
        layouts=Layouts(*(table if more else table[:-2])),
        batch=np.array([float(each.batch) for each in cases]),
        seconds=np.array([each.step_seconds or np.nan for each in cases]),
    )
