"""What each member reads to restore a state from peers' memory, up to 1,000 members.

All members are in this process and read each other over loopback; their tensors are small, since
only what is beside them could grow with the number of members: connections, descriptions, pages.
Each copies its part to a member on another node. Then one is lost, and all others restore a new
division of the rows at the same time. Seconds are CPU seconds of the whole process, both ends of
every connection, divided by the members.
"""

import resource
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from rich.console import Console

from benchmarks.common.output import argument_parser, progress, table
from paceline.checkpoints.manifest import Manifest
from paceline.checkpoints.saver import Snapshot
from paceline.checkpoints.tensor_extent import Box, Piece
from paceline.checkpoints.tensor_loading import fill
from paceline.cluster.open_files import allow_most_files
from paceline.membership.compact.answers import grouped_facts
from paceline.membership.compact.roster_book import RosterBook
from paceline.peers.copy_placement import duties
from paceline.peers.inventory import Inventory, newest_whole
from paceline.peers.memory_client import Peer, Source
from paceline.peers.peer_memory import Copied, PeerMemory
from paceline.peers.protocol import Wire
from paceline.peers.restored_storage import restored_storage
from paceline.specs.runs.roster import Member, Roster

PER_NODE, STEP = 8, 10
COPY_SECONDS = 300.0
"""Patience with copies: all members share this process."""
TENSORS, ROWS, WIDTH = 30, 4096, 2
SECTIONS = {"model": [""], "optimizer": ["/exp_avg", "/exp_avg_sq"]}


@dataclass(frozen=True)
class Row:
    """Figures of one crew: of a member in the median, and of the busiest."""

    members: int
    opened: tuple[int, int]
    answered: int
    """Connections to the busiest member."""
    received: tuple[int, int]
    cpu_seconds: float
    placement_seconds: float
    facts_bytes: int


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--members", default="64,256,1000")
    asked = parser.parse_args()
    allow_most_files()
    sizes = [int(word) for word in asked.members.split(",")]
    shown = table(
        "a restore after the loss of one member, for each of the others",
        *("members", "connections opened, median / most", "answered, most"),
        *("received, median / most", "CPU ms", "placement, ms", "facts about all copies"),
        texts=0,
    )
    for row in [measured(size) for size in progress(sizes, "restoring")]:
        shown.add_row(
            f"{row.members:,}",
            "{} / {}".format(*row.opened),
            str(row.answered),
            "{:.0f} / {:.0f} kB".format(*(each / 1e3 for each in row.received)),
            f"{1e3 * row.cpu_seconds:.0f}",
            f"{1e3 * row.placement_seconds:.1f}",
            f"{row.facts_bytes:,} B",
        )
    Console().print(shown)


def measured(size: int) -> Row:
    """Copy, lose one member, restore, and return what the others did."""
    told: list[Copied | str] = []
    memories = {
        f"member {rank}": PeerMemory(
            b"benchmark",
            "127.0.0.1",
            lambda _, how: told.append(how),
            patience_seconds=COPY_SECONDS,
        )
        for rank in range(size)
    }
    nodes = [f"node {rank // PER_NODE}" for rank in range(size)]
    peers = {
        name: Peer("127.0.0.1", memory.port, node)
        for (name, memory), node in zip(memories.items(), nodes, strict=True)
    }
    try:
        for rank, memory in enumerate(memories.values()):
            memory.join(0, rank, list(peers.values()), step=0, parity_group=0, parity=1)
        for rank, memory in enumerate(memories.values()):
            memory.copy(_snapshot(rank, size))
        for memory in memories.values():
            memory.wait()
        failed = [each for each in told if isinstance(each, str)]
        if failed:
            raise SystemExit(f"{len(failed)} copies failed: {failed[0]}")
        memories.pop(f"member {size // 2}").close()
        return _restored(size, memories, peers)
    finally:
        for memory in memories.values():
            memory.close()


def _restored(size: int, memories: dict[str, PeerMemory], peers: dict[str, Peer]) -> Row:
    inventories = {name: memory.inventory() for name, memory in memories.items()}
    began = time.process_time()
    duties(1, [each.node for each in peers.values()], parity_group=0, parity=1)
    placement_seconds = time.process_time() - began
    moment = newest_whole(inventories)
    assert moment is not None
    opened: Counter[int] = Counter()
    answered: Counter[Peer] = Counter()
    received: Counter[int] = Counter()
    lock = threading.Lock()
    open_one, receive = Source.__init__, Wire.receive

    def counted_opening(source: Source, peer: Peer, *rest: object) -> None:
        with lock:
            opened[threading.get_ident()] += 1
            answered[peer] += 1
        open_one(source, peer, *rest)  # type: ignore[arg-type]

    def counted_receiving(wire: Wire, into: memoryview) -> str:
        with lock:
            received[threading.get_ident()] += len(into)
        return receive(wire, into)

    names = list(memories)

    def restore(place: int) -> None:
        opened[threading.get_ident()] += 0
        pieces = _pieces(place, len(names))
        with restored_storage(
            memories[names[place]],
            moment,
            inventories,
            peers,
            name=names[place],
            generation=1,
            together=names,
        ) as saved:
            fill([piece for section in pieces.values() for piece in section], saved)
            ready.wait()  # as the workers of a run agree before they go on

    ready = threading.Barrier(len(names))
    setattr(Source, "__init__", counted_opening)  # noqa: B010
    setattr(Wire, "receive", counted_receiving)  # noqa: B010
    began = _cpu_seconds()
    try:
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(restore, range(len(names))))
    finally:
        setattr(Source, "__init__", open_one)  # noqa: B010
        setattr(Wire, "receive", receive)  # noqa: B010
    return Row(
        members=size,
        opened=_median_and_most(opened),
        answered=max(answered.values()),
        received=_median_and_most(received),
        cpu_seconds=(_cpu_seconds() - began) / len(names),
        placement_seconds=placement_seconds,
        facts_bytes=_facts_bytes(names, inventories),
    )


def _snapshot(rank: int, size: int) -> Snapshot:
    return Snapshot(Manifest.head(STEP), _pieces(rank, size), {})


def _pieces(place: int, count: int) -> dict[str, list[Piece]]:
    first, last = ROWS * place // count, ROWS * (place + 1) // count
    box = Box((first, 0), (last - first, WIDTH))
    return {
        section: [
            Piece(
                f"{section}/layers.{number}.weight{key}",
                (ROWS, WIDTH),
                box,
                torch.zeros(last - first, WIDTH),
            )
            for number in range(TENSORS)
            for key in keys
        ]
        for section, keys in SECTIONS.items()
    }


def _median_and_most(counted: Counter[int]) -> tuple[int, int]:
    ordered = sorted(counted.values())
    return ordered[len(ordered) // 2], ordered[-1]


def _facts_bytes(names: list[str], inventories: dict[str, Inventory]) -> int:
    """Return the size of the facts about peer copies in the message that begins a generation."""
    book = RosterBook()
    members = tuple(
        Member(
            name=name,
            node="",
            pid=1,
            start_ticks=1,
            address="127.0.0.1",
            port=1,
            memory_port=1,
        )
        for name in names
    )
    digest = book.add(Roster(generation=1, members=members, training=len(members)))
    facts = {
        name: {"held": held.relative().model_dump(mode="json"), "held_from": held.origins}
        for name, held in inventories.items()
    }
    return sum(
        len(each.model_dump_json())
        for groups in grouped_facts(facts, book, digest).values()
        for each in groups
    )


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
