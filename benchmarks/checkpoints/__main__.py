"""What checkpoints cost: how much a run slows down, and how fast they are written and read.

Slowdown: one worker, a state of 200 MB saved every 10 steps, against the same run without saving,
which runs first and last in every round; steps per second after the first ten. `cpu` computes on
the cores that also hash and write; `paced` stands for an accelerator (emulated: it sleeps).
Throughput: the same 200 MB by `torch.save` and `torch.load`, and by Paceline with its hashes, read
back from the page cache by both; all ways interleaved, medians. torch.save is measured as it is and
with an fsync behind it, since Paceline's files are on disk when it says so.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common.output import argument_parser
from benchmarks.common.runs import paceline_run
from paceline.checkpoints.folder import Folder
from paceline.checkpoints.manifest import Manifest
from paceline.checkpoints.saver import Saver, Snapshot
from paceline.checkpoints.tensor_extent import Extent, Piece
from paceline.checkpoints.tensor_loading import fill
from paceline.checkpoints.verification import newest_good
from paceline.specs import Saving

JOB = Path(__file__).parent / "train.py"
SAVE_EVERY = 10
GOALS = {"slowdown": 0.98, "throughput": 0.8}
State = dict[str, torch.Tensor]


def measure_slowdown(function: str) -> dict[str, float]:
    """Steps per second without saving, with it, and without it again."""
    found = {}
    for way, every in (("off", 0), ("on", SAVE_EVERY), ("off again", 0)):
        words = [f"{JOB}:{function}", "-n", 1, "--save-every", every]
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            found[way] = paceline_run(words, Path(folder)).steps_per_second
    return found


def measure_throughput(state: State, folder: Path, saver: Saver, step: int) -> dict[str, float]:
    """Seconds of each way to write a state and to read it."""
    for tensor in state.values():
        tensor.add_(1)  # a file that is as it was before would not be written again
    plain, seconds = folder / "plain.pt", {}
    seconds["torch.save"] = _timed(lambda: torch.save(state, plain))
    plain.unlink()
    seconds["torch.save and fsync"] = _timed(lambda: _save_and_sync(state, plain))
    seconds["paceline save"] = _timed(lambda: _save(state, saver, step))
    room = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    seconds["torch.load"] = _timed(lambda: _read_plain(plain, room))
    seconds["paceline load"] = _timed(lambda: _read(Folder(folder / "checkpoints"), room))
    if any(not torch.equal(room[name], tensor) for name, tensor in state.items()):
        raise RuntimeError("what was read is not what was written")
    plain.unlink()
    return seconds


def _timed(action: Callable[[], None]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _save_and_sync(state: State, path: Path) -> None:
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def _pieces(state: State) -> list[Piece]:
    return [
        piece
        for name, tensor in state.items()
        for piece in Extent.everything(tuple(tensor.shape)).pieces(name, tensor)
    ]


def _new_saver(folder: Path) -> Saver:
    """One for all rounds, as a run has it: it keeps the memory that it copies into."""
    storage = Folder(folder / "checkpoints")
    return Saver(
        storage, Saving(keep_last=9), worker=0, nodes=[[0]], attempt=0, on_saved=lambda *_: None
    )


def _save(state: State, saver: Saver, step: int) -> None:
    saver.save(Snapshot(Manifest.head(step), {"model": _pieces(state)}))
    saver.wait()


def _read_plain(path: Path, room: State) -> None:
    for name, tensor in torch.load(path, weights_only=True).items():
        room[name].copy_(tensor)


def _read(storage: Folder, room: State) -> None:
    saved = newest_good(
        storage, worker=0, workers=1, all_agree=lambda good: good, on_damage=lambda *_: None
    )
    if saved is None:
        raise RuntimeError("there is no checkpoint")
    fill(_pieces(room), saved)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=3, help="rounds")
    parser.add_argument("--parts", default="slowdown,throughput", help="some of: %(default)s")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=True)
    figures: dict[str, float] = {}
    rounds = range(options.pairs)
    if "slowdown" in options.parts:
        for function in ("training", "paced"):
            name = f"{'cpu' if function == 'training' else function} run"
            turns = track(rounds, name, console=console, disable=options.json)
            figures |= _slowdown(name, [measure_slowdown(function) for _ in turns])
    if "throughput" in options.parts:
        state = {str(number): torch.randn(1250, 1000) for number in range(40)}
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            saver = _new_saver(Path(folder))
            # Memory that is touched for the first time is not counted.
            measure_throughput(state, Path(folder), saver, 1)
            turns = track(range(2, 9), "writing and reading", console=console, disable=options.json)
            found = [measure_throughput(state, Path(folder), saver, step) for step in turns]
        figures |= _throughput(found, sum(tensor.nbytes for tensor in state.values()))
    met = {
        name: value >= GOALS["slowdown" if "run" in name else "throughput"]
        for name, value in figures.items()
        if name.endswith(("with / without saving", "by torch.save", "by torch.load"))
    }
    if options.json:
        print(json.dumps({"figures": figures, "met": met}, indent=2))
        return
    table = Table(title=f"200 MB, {options.pairs} interleaved rounds, medians; measured")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:.3f}")
    Console().print(table)
    for name, reached in met.items():
        Console().print(f"{'met' if reached else 'NOT MET'}: {name}")


def _slowdown(name: str, found: list[dict[str, float]]) -> dict[str, float]:
    ratios = [each["on"] / statistics.mean((each["off"], each["off again"])) for each in found]
    null = [each["off again"] / each["off"] for each in found]
    return {
        f"{name}: with / without saving": statistics.median(ratios),
        f"{name}: without again / without (noise)": statistics.median(null),
        f"{name}: steps per second without": statistics.median(each["off"] for each in found),
    }


def _throughput(found: list[dict[str, float]], size: int) -> dict[str, float]:
    def ratio(bare: str, ours: str) -> float:
        return statistics.median(each[bare] / each[ours] for each in found)

    ways = {
        f"{way}, MB/s": size / 1e6 / statistics.median(each[way] for each in found)
        for way in found[0]
    }
    return ways | {
        "speed of saving by torch.save": ratio("torch.save", "paceline save"),
        "speed of saving by torch.save and fsync": ratio("torch.save and fsync", "paceline save"),
        "speed of loading by torch.load": ratio("torch.load", "paceline load"),
    }


if __name__ == "__main__":
    main()
