"""Loading through Paceline against a bare DataLoader, and streaming from a real S3 server.

Throughput: samples per second of the same dataset with the same loader processes, from the first
batch on; bare, Paceline and bare again one after the other in every round, every other round
backwards, and medians of the ratios within the rounds. What differs between the two bare ones is
noise.

S3: `rclone serve s3` on loopback, held to a rate that is twice what the training needs, streams tar
shards through a cache that is smaller than the data into a training that sleeps in every step
(emulated compute, real transfers). Busy is the share of the time after the first batch that the
training slept; beside it the same from local files.
"""

import argparse
import io
import json
import statistics
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.utils.data import DataLoader, Dataset, TensorDataset

from benchmarks.common.output import argument_parser
from data.s3_server import serving
from paceline.data import Cache, Tars, Tokens
from paceline.data.batches import Batches
from paceline.data.collation.form import BatchForm
from paceline.data.loader import load
from paceline.data.order_choice import order_of

BATCH = 64
THROUGHPUT_GOAL, BUSY_GOAL = 0.97, 0.95
CPU = torch.device("cpu")

SHARDS, SAMPLES_PER_SHARD, SAMPLE_BYTES, WINDOW = 24, 256, 16_384, 2
SECONDS_PER_STEP = 0.1
SHARD_BYTES = SAMPLES_PER_SHARD * (SAMPLE_BYTES + 3 * tarfile.BLOCKSIZE) + tarfile.RECORDSIZE
RATE = f"{2 * BATCH * SAMPLE_BYTES / SECONDS_PER_STEP / 2**20:.0f}M"


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Decoding and augmentation as of an image of 256 x 256: unpack, cut at random, scale."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        pixels = np.random.default_rng(0).integers(0, 64, (256, 256, 3), dtype=np.uint8)
        self.packed = zlib.compress(pixels.tobytes())

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = np.frombuffer(zlib.decompress(self.packed), dtype=np.uint8).reshape(256, 256, 3)
        top, left = torch.randint(0, 32, (2,)).tolist()
        cut = torch.from_numpy(pixels[top : top + 224, left : left + 224].copy())
        return cut.permute(2, 0, 1).float().div(255).sub(0.5).contiguous(), index % 10


def tensors(folder: Path) -> Any:
    return TensorDataset(torch.randn(64_000, 64), torch.zeros(64_000, dtype=torch.long))


def images(folder: Path) -> Any:
    return Images(2_000)


def tokens(folder: Path) -> Any:
    path = folder / "tokens.bin"
    np.random.default_rng(0).integers(0, 50_000, 512 * 32_000 + 1, dtype=np.uint16).tofile(path)
    return Tokens(path, length=512)


DATASETS: dict[str, Callable[[Path], Any]] = {
    "tensors": tensors,
    "images": images,
    "tokens": tokens,
}


def bare(data: Any, loaders: int) -> float:
    loader: DataLoader[Any] = DataLoader(
        data, BATCH, shuffle=True, num_workers=loaders, persistent_workers=loaders > 0
    )
    return samples_per_second(iter(loader), len(data))


def through_paceline(data: Any, loaders: int) -> float:
    order = order_of(data, len(data), seed=0, shuffle=True)
    batches = Batches(order, BATCH, -(-len(data) // BATCH), workers=1, rank=0)
    return samples_per_second(load(data, batches, CPU, BatchForm(), processes=loaders), len(data))


def samples_per_second(batches: Iterator[Any], samples: int) -> float:
    """Of an epoch, from the first batch on: starting processes is not what is compared."""
    next(batches)
    begin = time.perf_counter()
    for _ in batches:
        pass
    return (samples - BATCH) / (time.perf_counter() - begin)


WAYS = {"bare": bare, "paceline": through_paceline, "bare again": bare}


@dataclass
class Found:
    """What the rounds of one dataset gave: samples per second of each way."""

    rounds: list[dict[str, float]] = field(default_factory=list)

    def measure(self, data: Any, loaders: int) -> None:
        """One more round, every other one backwards."""
        order = list(WAYS)
        ways = reversed(order) if len(self.rounds) % 2 else order
        self.rounds.append({way: WAYS[way](data, loaders) for way in ways})

    def ratio(self, way: str) -> float:
        """Its speed by that of the bare loader."""
        return statistics.median(each[way] / each["bare"] for each in self.rounds)

    def speed(self, way: str) -> float:
        """Its samples per second."""
        return statistics.median(each[way] for each in self.rounds)


@dataclass(frozen=True)
class Streamed:
    """How busy a paced training was kept."""

    busy: float
    first_batch_seconds: float
    steps: int


def write_shards(folder: Path) -> None:
    """Tars of samples that cannot be compressed on their way."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    for shard in range(SHARDS):
        with tarfile.open(folder / f"shard-{shard:03}.tar", "w") as tar:
            for number in range(SAMPLES_PER_SHARD):
                member = tarfile.TarInfo(f"{shard:03}-{number:05}.bin")
                member.size = SAMPLE_BYTES
                tar.addfile(member, io.BytesIO(generator.bytes(SAMPLE_BYTES)))


def decoded(sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
    return torch.from_numpy(np.frombuffer(sample["bin"], dtype=np.uint8).copy()), 0


def streamed(paths: str, cache: Path, loaders: int, **options: Any) -> Streamed:
    """Train on shards with a cold cache that holds two windows of them."""
    data = Tars(
        paths,
        decoded,
        window=WINDOW,
        samples_per_shard=[SAMPLES_PER_SHARD] * SHARDS,
        cache=Cache(cache, limit_bytes=2 * WINDOW * SHARD_BYTES),
        **options,
    )
    steps = len(data) // BATCH
    batches = Batches(order_of(data, len(data), 0, True), BATCH, steps, workers=1, rank=0)
    asked = time.perf_counter()
    arriving = load(data, batches, CPU, BatchForm(), processes=loaders)
    next(arriving)
    begin, slept = time.perf_counter(), 0.0
    for number in range(steps):
        at_work = time.perf_counter()
        time.sleep(SECONDS_PER_STEP)
        slept += time.perf_counter() - at_work
        if number + 1 < steps:
            next(arriving)
    busy = slept / (time.perf_counter() - begin)
    arriving.close()  # type: ignore[attr-defined] # a generator, which stops its thread
    return Streamed(busy, begin - asked, steps)


def from_s3_and_disk(folder: Path, loaders: int) -> dict[str, Streamed]:
    bucket = folder / "s3" / "bucket"
    bucket.parent.mkdir()
    write_shards(bucket)
    disk = streamed(str(bucket / "*.tar"), folder / "disk cache", loaders)
    with serving(bucket.parent, rate=RATE) as server:
        s3 = streamed(
            "s3://bucket/*.tar",
            folder / "s3 cache",
            loaders,
            storage_options=server.storage_options,
        )
    return {"s3": s3, "disk": disk}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=7, help="rounds")
    parser.add_argument("--loaders", type=int, default=2, help="loader processes")
    parser.add_argument("--parts", default="throughput,s3", help="some of: %(default)s")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - {"throughput", "s3"}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    shown = partial(track, console=Console(stderr=True), disable=options.json)
    found: dict[str, Found] = {}
    kept_busy: dict[str, Streamed] = {}
    with tempfile.TemporaryDirectory() as name:
        if "throughput" in parts:
            datasets = {each: make(Path(name)) for each, make in DATASETS.items()}
            found = {each: Found() for each in DATASETS}
            for _ in shown(range(options.pairs), "throughput"):
                for each, its in found.items():
                    its.measure(datasets[each], options.loaders)
        if "s3" in parts:
            for _ in shown(range(1), "streaming"):
                kept_busy = from_s3_and_disk(Path(name), options.loaders)
    met = {
        f"{each}_ratio >= {THROUGHPUT_GOAL}": its.ratio("paceline") >= THROUGHPUT_GOAL
        for each, its in found.items()
    }
    if kept_busy:
        met[f"s3_busy >= {BUSY_GOAL}"] = kept_busy["s3"].busy >= BUSY_GOAL
    (_print_json if options.json else _print_tables)(found, kept_busy, met, options)


def _print_json(
    found: dict[str, Found],
    kept_busy: dict[str, Streamed],
    met: dict[str, bool],
    options: argparse.Namespace,
) -> None:
    figures: dict[str, float] = {"pairs": options.pairs, "loaders": options.loaders}
    for each, its in found.items():
        figures[f"{each}_ratio"] = its.ratio("paceline")
        figures[f"{each}_ratio_null"] = its.ratio("bare again")
    for where, stream in kept_busy.items():
        figures[f"{where}_busy"] = stream.busy
        figures[f"{where}_first_batch_seconds"] = stream.first_batch_seconds
    rounds = {each: its.rounds for each, its in found.items()}
    print(json.dumps({"figures": figures, "met": met, "samples_per_second": rounds}, indent=2))


def _print_tables(
    found: dict[str, Found],
    kept_busy: dict[str, Streamed],
    met: dict[str, bool],
    options: argparse.Namespace,
) -> None:
    console = Console()
    if found:
        title = f"{options.loaders} loaders, {options.pairs} interleaved rounds, medians; measured"
        table = Table(title=title)
        table.add_column("dataset")
        for column in ("bare samples/s", "paceline / bare", "bare again / bare (noise)"):
            table.add_column(column, justify="right")
        for each, its in found.items():
            ratios = [f"{its.ratio(way):.3f}" for way in ("paceline", "bare again")]
            table.add_row(each, f"{its.speed('bare'):,.0f}", *ratios)
        console.print(table)
    if kept_busy:
        total = SHARDS * SHARD_BYTES / 2**20
        table = Table(
            title=f"{SHARDS} shards, {total:.0f} MiB in all, S3 at {RATE}iB/s;"
            f" {SECONDS_PER_STEP:g} s a step (emulated)"
        )
        for column in ("from", "steps", "busy", "first batch s"):
            table.add_column(column, justify="left" if column == "from" else "right")
        for where, stream in kept_busy.items():
            first = f"{stream.first_batch_seconds:.2f}"
            table.add_row(where, str(stream.steps), f"{stream.busy:.1%}", first)
        console.print(table)
    for goal, reached in met.items():
        console.print(f"{'met' if reached else 'NOT MET'}: {goal}")


if __name__ == "__main__":
    main()
