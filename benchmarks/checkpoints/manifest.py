"""What the manifest of a sharded 7B model costs: bytes, and CPU seconds of the busiest worker.

Every worker's part in saving is run one after the other, by the code that a training runs, with
tensors that have no data: so hashing and writing them are left out, and so are waits. Loading is
run for three workers of the same layout and three of half as many shards. Seconds are those of one
process's CPU, in which the load of the machine counts little. Manifests of format 1 (`--format-1
SHARDS`), which version 0.1 wrote, are made by this benchmark and read by today's reader.
"""

import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

import torch
from blake3 import blake3
from rich.console import Console
from rich.table import Table

from benchmarks.common.output import argument_parser
from paceline.checkpoints.folder import Folder
from paceline.checkpoints.manifest import MANIFEST, SEAL, FileRecord, Manifest, Scalar, digest_of
from paceline.checkpoints.pages.collection import Collector
from paceline.checkpoints.pages.handed_in import handed_in_part, root_of
from paceline.checkpoints.pages.outline import Outline
from paceline.checkpoints.pages.packed import packed
from paceline.checkpoints.tensor_extent import Box, Piece
from paceline.checkpoints.tensor_loading import reads_by_file
from paceline.checkpoints.verification import saved_at
from paceline.specs.owned_files import make_folder, write_owned

WIDTH, INNER, WORDS, LAYERS = 4096, 11008, 32000, 32
WORKERS_PER_NODE = 8
STEP = 10
GOAL_SECONDS = 0.2


def model() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The weights of Llama 2 7B: 291 tensors with 6.7 billion parameters."""
    yield "model.embed_tokens.weight", (WORDS, WIDTH)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in ("q", "k", "v", "o"):
            yield f"{prefix}self_attn.{name}_proj.weight", (WIDTH, WIDTH)
        for name in ("gate", "up"):
            yield f"{prefix}mlp.{name}_proj.weight", (INNER, WIDTH)
        yield f"{prefix}mlp.down_proj.weight", (WIDTH, INNER)
        yield f"{prefix}input_layernorm.weight", (WIDTH,)
        yield f"{prefix}post_attention_layernorm.weight", (WIDTH,)
    yield "model.norm.weight", (WIDTH,)
    yield "lm_head.weight", (WORDS, WIDTH)


def sections(worker: int, shards: int) -> dict[str, list[Piece]]:
    """A worker's shards of weights and Adam's state, divided as FSDP2 does, without their data."""
    found: dict[str, list[Piece]] = {"model": [], "optimizer": []}
    for name, whole in model():
        rows = -(-whole[0] // shards)
        begin, end = (min(whole[0], each * rows) for each in (worker, worker + 1))
        if begin == end:
            continue
        shape = (end - begin, *whole[1:])
        tensor = _without_data(shape)
        box = Box((begin, *(0,) * (len(whole) - 1)), shape)
        found["model"].append(Piece(f"model/{name}", whole, box, tensor))
        for key in ("exp_avg", "exp_avg_sq"):
            found["optimizer"].append(Piece(f"optimizer/{name}/{key}", whole, box, tensor))
    return {section: pieces for section, pieces in found.items() if pieces}


@cache
def _without_data(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def scalars() -> dict[str, Scalar]:
    """Adam's counts of steps."""
    return {f"optimizer/{name}/step": Scalar(value=STEP, dtype="float32") for name, _ in model()}


@dataclass
class Costs:
    """What a manifest costs, in bytes and CPU seconds."""

    shards: int
    root_bytes: int = 0
    page_bytes: int = 0
    """The largest page."""
    total_bytes: int = 0
    handed_in_bytes: int = 0
    """Bytes that are handed in and deleted again, by all workers."""
    first_save_seconds: float = 0.0
    """Of the busiest worker, which describes its tensors for the first time."""
    save_seconds: float = 0.0
    """… in later saves of the same tensors."""
    page_save_seconds: float = 0.0
    """Of the busiest worker in later saves that writes no root."""
    load_seconds: float = 0.0
    """Of the busiest loader."""
    load_bytes: int = 0
    """Most bytes of the manifest that a loader reads."""
    other_load_seconds: float = 0.0
    """Of the busiest loader of half as many shards."""
    other_load_bytes: int = 0


def measure(shards: int, folder: Path) -> Costs:
    """Save and load once, every worker one after the other."""
    costs, storage = Costs(shards), Folder(folder / "checkpoints")
    nodes = [range(at, at + WORKERS_PER_NODE) for at in range(0, shards, WORKERS_PER_NODE)]
    draft, state_scalars = storage.draft(STEP, 0), scalars()
    collectors = _Timed()
    for worker in reversed(range(shards)):  # those that a worker waits for come first
        own, outline = sections(worker, shards), Outline(worker)
        collector = Collector(worker, nodes, 0, Event())
        with collectors.during(worker, "first"):
            outline.follow(own)
        records = [
            FileRecord(bytes=file.bytes, blake3=blake3(file.name.encode()).hexdigest())
            for file in outline.files
        ]
        with collectors.during(worker, "every"):
            collected = collector.collect(handed_in_part(outline, records, state_scalars), draft)
            if collector.commits:
                root = root_of(Manifest.head(STEP), collected)
                draft.commit(root.text())
            else:
                collector.hand_in(collected, draft)
                costs.handed_in_bytes += len(packed(collected))
    every, first = collectors.seconds["every"], collectors.seconds["first"]
    costs.save_seconds = max(every.values())
    costs.page_save_seconds = max(seconds for worker, seconds in every.items() if worker)
    costs.first_save_seconds = max(every[worker] + first[worker] for worker in every)
    sizes = {path.name: path.stat().st_size for path in (folder / "checkpoints").glob("*/*.json")}
    costs.root_bytes, costs.total_bytes = sizes.pop(MANIFEST), sum(sizes.values())
    costs.total_bytes += costs.root_bytes
    costs.page_bytes = max(sizes.values(), default=0)
    costs.load_seconds, costs.load_bytes = _load(folder, shards)
    costs.other_load_seconds, costs.other_load_bytes = _load(folder, shards // 2)
    return costs


class _Timed:
    """CPU seconds of each worker, by kind."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[int, float]] = {
            kind: defaultdict(float) for kind in ("first", "every")
        }

    @contextmanager
    def during(self, worker: int, kind: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds[kind][worker] += time.process_time() - began


class _Counted(Folder):
    """Counts the bytes that are read of a manifest."""

    read_bytes = 0

    @contextmanager
    def reading(self, step: int, name: str, most_bytes: int) -> Iterator[Path]:
        with super().reading(step, name, most_bytes) as path:
            self.read_bytes += path.stat().st_size
            yield path


def _load(folder: Path, shards: int) -> tuple[float, int]:
    """Find what three of the workers read: CPU seconds and bytes of the busiest."""
    seconds, read_bytes = [], []
    for worker in (0, shards // 2, shards - 1):
        wanted = [piece for pieces in sections(worker, shards).values() for piece in pieces]
        storage = _Counted(folder / "checkpoints")
        began = time.process_time()
        saved = saved_at(storage, STEP)
        saved.index.share(worker, shards)
        reads = reads_by_file(wanted, saved)
        seconds.append(time.process_time() - began)
        read_bytes.append(storage.read_bytes)
        if wanted and not reads:
            raise RuntimeError("nothing was found")
    return max(seconds), max(read_bytes)


def measure_format_1(shards: int, folder: Path) -> Costs:
    """Read a manifest of format 1."""
    files: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    for worker in range(shards):
        outline = Outline(worker)
        outline.follow(sections(worker, shards))
        for file in outline.files:
            digest = blake3(file.name.encode()).hexdigest()
            files[file.name] = {"bytes": file.bytes, "blake3": digest}
            for piece in file.pieces:
                form = {"shape": piece.whole, "dtype": "float32", "pieces": []}
                key = f"{piece.name}[{','.join(map(str, piece.box.offset))}]"
                tensors.setdefault(piece.name, form)["pieces"].append(
                    {"file": file.name, "key": key, **piece.box._asdict()}
                )
    head = json.loads(Manifest.head(STEP).model_dump_json(exclude={"tensors", "scalars"}))
    counts = {name: each.model_dump() for name, each in scalars().items()}
    whole = head | {"format": 1, "files": files, "tensors": tensors, "scalars": counts}
    text = json.dumps(whole, separators=(",", ":")).encode()
    place = folder / "checkpoints" / f"step-{STEP:010d}"
    for each in (place.parent, place):
        make_folder(each, exist_ok=True)
    write_owned(place / MANIFEST, text)
    write_owned(place / SEAL, digest_of(text))
    costs = Costs(shards, root_bytes=len(text), total_bytes=len(text))
    costs.load_seconds, costs.load_bytes = _load(folder, shards)
    return costs


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--shards", default="512,4096,16384", help="default: %(default)s")
    parser.add_argument("--format-1", type=int, default=512, metavar="SHARDS", help="0: leave out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ways: list[tuple[str, Callable[[int, Path], Costs], int]] = [
        ("pages", measure, int(shards)) for shards in options.shards.split(",")
    ]
    if options.format_1:
        ways.insert(0, ("format 1", measure_format_1, options.format_1))
    found: list[dict[str, Any]] = []
    for name, way, shards in ways:
        with tempfile.TemporaryDirectory() as folder:
            found.append({"manifest": name, **asdict(way(shards, Path(folder)))})
    if options.json:
        print(json.dumps({"load": os.getloadavg()[0], "figures": found}, indent=2))
        return
    table = Table(title=f"measured; load of the machine: {os.getloadavg()[0]:.0f}")
    table.add_column("figure")
    for each in found:
        table.add_column(f"{each['manifest']}, {each['shards']:,}", justify="right")
    for figure in found[0]:
        if figure not in ("manifest", "shards"):
            values = [each[figure] for each in found]
            table.add_row(
                figure,
                *(
                    f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
                    for value in values
                ),
            )
    Console().print(table)
    for each in found:
        if each["manifest"] == "pages":
            met = max(each["first_save_seconds"], each["save_seconds"]) <= GOAL_SECONDS
            print(f"{'met' if met else 'NOT MET'}: {GOAL_SECONDS} s at {each['shards']:,} shards")


if __name__ == "__main__":
    main()
