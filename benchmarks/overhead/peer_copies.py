"""What a copy of the state in peers' memory costs every 10 steps.

Each worker is a process that keeps a part of the state and takes steps together with the others.
A step is `paced` (it sleeps, as the CPU does while an accelerator computes: emulated) or `cpu` (it
multiplies matrices on the cores that also copy). Every round takes the same steps without copies,
with each way of copying, and without again; all over loopback on one machine, so that both ends of
every copy, and all workers, share its cores and its memory. Medians over rounds; CPU seconds are
those of all workers, less those of the same steps without copies, for each GB of the state.
"""

import json
import multiprocessing
import statistics
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common.output import argument_parser
from paceline.checkpoints.manifest import Manifest
from paceline.checkpoints.saver import Snapshot
from paceline.checkpoints.tensor_extent import Extent
from paceline.peers.memory_client import Peer
from paceline.peers.peer_memory import Copied, PeerMemory

WAYS = {"copies": (0, 1), "xor": (4, 1), "reed-solomon": (4, 2)}
"""Workers of a group, and how many of it may be lost."""
STEP_SECONDS = 0.1
EVERY, STEPS, WARM_UP = 10, 60, 20
TENSORS = 8


@dataclass(frozen=True)
class Measured:
    """What one worker measured after the warm-up."""

    seconds: float
    cpu_seconds: float
    stall_seconds: float
    copy_seconds: float
    copies: int
    failed: int


def worker(rank: int, megabytes: int, kind: str, way: str, pipe: Connection, edge: Barrier) -> None:
    torch.set_num_threads(1)
    told: list[Copied | str] = []
    memory = PeerMemory(b"benchmark", "127.0.0.1", lambda _, result: told.append(result))
    pipe.send(memory.port)
    ports: list[int] = pipe.recv()
    group, parity = WAYS.get(way, (0, 1))
    peers = [Peer("127.0.0.1", port, f"node {number}") for number, port in enumerate(ports)]
    memory.join(0, rank, peers, step=0, parity_group=group, parity=parity)
    state = [torch.randn(megabytes * 1000 // TENSORS, 250) for _ in range(TENSORS)]
    matrix = torch.randn(512, 512)
    began = cpu_began = stalled = 0.0
    for step in range(1, STEPS + 1):
        if step == WARM_UP + 1:
            memory.wait()
            edge.wait()
            told.clear()
            began, cpu_began, stalled = time.perf_counter(), time.process_time(), 0.0
        _take_step(kind, matrix)
        state[step % TENSORS].add_(1)
        edge.wait()
        if way in WAYS and step % EVERY == 0:
            if memory.complete_step is not None:
                memory.forget(before=memory.complete_step)
            stall_began = time.perf_counter()
            memory.copy(_snapshot(step, rank, len(ports), state))
            stalled += time.perf_counter() - stall_began
    seconds = time.perf_counter() - began
    memory.wait()
    edge.wait()
    done = [each for each in told if isinstance(each, Copied)]
    pipe.send(
        Measured(
            seconds=seconds,
            cpu_seconds=time.process_time() - cpu_began,
            stall_seconds=stalled / max(1, len(told)),
            copy_seconds=statistics.median(each.seconds for each in done) if done else 0.0,
            copies=len(done),
            failed=len(told) - len(done),
        )
    )
    edge.wait()
    memory.close()


def _take_step(kind: str, matrix: torch.Tensor) -> None:
    if kind == "paced":
        time.sleep(STEP_SECONDS)
        return
    for _ in range(20):
        matrix @ matrix


def _snapshot(step: int, rank: int, workers: int, state: list[torch.Tensor]) -> Snapshot:
    pieces = [
        piece
        for number, tensor in enumerate(state)
        for piece in Extent.everything(tuple(tensor.shape)).pieces(f"{rank}.{number}", tensor)
    ]
    return Snapshot(Manifest.head(step), {"model": pieces})


def measure(workers: int, megabytes: int, kind: str, way: str) -> list[Measured]:
    """All workers' measurements of one way."""
    context = multiprocessing.get_context("forkserver")
    edge = context.Barrier(workers)
    pipes = [context.Pipe() for _ in range(workers)]
    processes = [
        context.Process(target=worker, args=(rank, megabytes, kind, way, far, edge), daemon=True)
        for rank, (_, far) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    ports = [near.recv() for near, _ in pipes]
    for near, _ in pipes:
        near.send(ports)
    found: list[Measured] = [near.recv() for near, _ in pipes]
    for process in processes:
        process.join()
    return found


def one_round(workers: int, megabytes: int, kind: str) -> dict[str, dict[str, float]]:
    """Every way once, beside the same steps without copies before and after."""
    found = {
        way: measure(workers, megabytes, kind, way) for way in ("without", *WAYS, "without again")
    }
    seconds = {way: statistics.mean(each.seconds for each in all_) for way, all_ in found.items()}
    cpu = {way: sum(each.cpu_seconds for each in all_) for way, all_ in found.items()}
    bare = (seconds["without"] + seconds["without again"]) / 2
    bare_cpu = (cpu["without"] + cpu["without again"]) / 2
    figures = {"without again": {"speed by without": seconds["without"] / seconds["without again"]}}
    for way in WAYS:
        gigabytes = megabytes / 1e3 * sum(each.copies for each in found[way])
        figures[way] = {
            "speed by without": bare / seconds[way],
            "stall, ms": 1e3 * statistics.mean(each.stall_seconds for each in found[way]),
            "copy, s": statistics.median(each.copy_seconds for each in found[way]),
            "MB/s of a worker": megabytes
            / statistics.median(each.copy_seconds for each in found[way]),
            "CPU s per GB": (cpu[way] - bare_cpu) / gigabytes,
            "failed": float(sum(each.failed for each in found[way])),
        }
    return figures


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=50, help="of state, each worker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default="paced,cpu", help="of steps, some of: %(default)s")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, dict[str, dict[str, float]]] = {}
    for kind in options.kinds.split(","):
        turns = track(
            range(options.rounds), kind, console=Console(stderr=True), disable=options.json
        )
        rounds = [one_round(options.workers, options.megabytes, kind) for _ in turns]
        results[kind] = {
            way: {name: statistics.median(each[way][name] for each in rounds) for name in names}
            for way, names in rounds[0].items()
        }
    if options.json:
        print(json.dumps({"measured": results}, indent=2))
        return
    for kind, ways in results.items():
        label = "emulated device, measured copies" if kind == "paced" else "measured"
        table = Table(
            title=f"{kind} steps ({label}): {options.workers} workers, {options.megabytes} MB each,"
            f" a copy every {EVERY} steps; medians of {options.rounds} rounds"
        )
        table.add_column("")
        for name in ways["copies"]:
            table.add_column(name, justify="right")
        for way, figures in ways.items():
            table.add_row(
                way, *(f"{figures[each]:.3f}" if each in figures else "" for each in ways["copies"])
            )
        Console().print(table)


if __name__ == "__main__":
    main()
