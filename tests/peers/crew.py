"""Several members that keep each other's state, each with a listener of its own on loopback."""

from collections.abc import Iterable, Sequence

import torch

from paceline.checkpoints.manifest import Manifest, Scalar
from paceline.checkpoints.saver import Snapshot
from paceline.checkpoints.tensor_extent import Box, Extent, Piece
from paceline.checkpoints.tensor_loading import fill
from paceline.peers.inventory import Moment, newest_whole
from paceline.peers.memory_client import Peer
from paceline.peers.peer_memory import Copied, PeerMemory
from paceline.peers.restored_storage import restored_storage

SECRET = b"only this job knows it"
ROWS = 12
WIDTH = 1000


def whole_state(step: int) -> torch.Tensor:
    """What all workers have together after a step."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, WIDTH, generator=generator)


def snapshot_of(step: int, rank: int, workers: int) -> Snapshot:
    """The rows of one worker, some more than others, and a tensor that only the first has."""
    edges = [ROWS * each * each // (workers * workers) for each in range(workers + 1)]
    box = Box((edges[rank], 0), (edges[rank + 1] - edges[rank], WIDTH))
    sections = {"model": [Piece("weight", (ROWS, WIDTH), box, whole_state(step)[box.slices])]}
    if rank == 0:
        own = torch.full((7,), step, dtype=torch.uint8)
        sections["optimizer"] = list(Extent.everything((7,)).written("count", own))
    head = Manifest.head(step, samples=step * 10, seconds=1.0, values={"groups": [{"lr": 0.1}]})
    return Snapshot(head, sections, {f"scalar {rank}": Scalar(value=step)})


class Crew:
    """Members of one generation; all in this process, which read each other over TCP all the same.

    Each is told here what became of its copies.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        parity_group: int = 0,
        parity: int = 1,
        patience_seconds: float = 10.0,
    ) -> None:
        self.told: dict[str, dict[int, Copied | str]] = {}
        self.members: dict[str, PeerMemory] = {}
        self.peers: dict[str, Peer] = {}
        self.ranks: dict[str, int] = {}
        self._settings = {"parity_group": parity_group, "parity": parity}
        for rank, node in enumerate(nodes):
            self.add(f"member {rank}", node, patience_seconds)
        self.join(0, list(self.members))

    def add(self, name: str, node: str, patience_seconds: float = 10.0) -> PeerMemory:
        """A new member, which has nothing yet."""
        told: dict[int, Copied | str] = {}
        memory = PeerMemory(
            SECRET, "127.0.0.1", told.__setitem__, patience_seconds=patience_seconds
        )
        self.told[name], self.members[name] = told, memory
        self.peers[name] = Peer("127.0.0.1", memory.port, node)
        return memory

    def join(self, generation: int, names: Sequence[str], step: int = 0) -> None:
        """A generation of these members begins."""
        self.ranks = {name: rank for rank, name in enumerate(names)}
        peers = [self.peers[name] for name in names]
        for name, memory in self.members.items():
            rank = self.ranks.get(name)
            memory.join(generation, rank, peers, step=step, **self._settings)

    def copy(self, step: int, *, without: Iterable[str] = ()) -> None:
        """All copy, and have what they should when this returns."""
        for name, rank in self.ranks.items():
            if name not in without:
                self.members[name].copy(snapshot_of(step, rank, len(self.ranks)))
        self.wait()

    def wait(self) -> None:
        for memory in self.members.values():
            memory.wait()

    def lose(self, *names: str) -> None:
        """These are gone, with their memory."""
        for name in names:
            self.members.pop(name).close()

    def newest(self) -> Moment | None:
        return newest_whole({name: each.inventory() for name, each in self.members.items()})

    def restored(self, name: str, generation: int = 1) -> int:
        """Read the newest state as one of those who are left: its step, if it is right."""
        moment = self.newest()
        assert moment is not None
        inventories = {each: memory.inventory() for each, memory in self.members.items()}
        weight, count = torch.zeros(ROWS, WIDTH), torch.zeros(7, dtype=torch.uint8)
        pieces = [
            *Extent.everything((ROWS, WIDTH)).pieces("weight", weight),
            *Extent.everything((7,)).pieces("count", count),
        ]
        with restored_storage(
            self.members[name], moment, inventories, self.peers, name=name, generation=generation
        ) as saved:
            fill(pieces, saved)
            manifest = saved.manifest
        assert torch.equal(weight, whole_state(manifest.step))
        assert count.tolist() == [manifest.step] * 7
        assert len(manifest.scalars) == moment.workers
        assert manifest.samples == manifest.step * 10
        return manifest.step

    def close(self) -> None:
        self.lose(*list(self.members))
