"""Several workers on several nodes that save one state: threads, with a saver each."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from checkpoints.saved import Told
from paceline.checkpoints.folder import Folder
from paceline.checkpoints.manifest import Manifest, Scalar
from paceline.checkpoints.saved_state import SavedState
from paceline.checkpoints.saver import Saver, Snapshot
from paceline.checkpoints.tensor_extent import Extent, Piece
from paceline.checkpoints.tensor_loading import fill
from paceline.checkpoints.verification import newest_good
from paceline.specs import Saving

Division = Callable[[int], Extent]
"""The part of a tensor that each worker holds."""


def whole(shapes: dict[str, tuple[int, ...]], step: int) -> dict[str, torch.Tensor]:
    """The state of all workers together after a step."""
    generator = torch.Generator().manual_seed(step)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def local(full: torch.Tensor, extent: Extent) -> torch.Tensor:
    """A worker's part of a tensor."""
    ends = [
        tuple(a + length for a, length in zip(here, box.shape, strict=True))
        for box, here in extent.parts
    ]
    tensor = torch.empty(tuple(map(max, zip(*ends, strict=True))))
    for box, here in extent.parts:
        at = tuple(slice(a, a + length) for a, length in zip(here, box.shape, strict=True))
        tensor[at] = full[box.slices]
    return tensor


class Workers:
    """The workers of one start of a run."""

    def __init__(self, folder: Path, nodes: Sequence[Sequence[int]], attempt: int = 0) -> None:
        self.folder, self.told = folder, Told()
        self.count = sum(map(len, nodes))
        self.savers = [
            Saver(
                Folder(folder),
                Saving(keep_last=10),
                worker=worker,
                nodes=nodes,
                attempt=attempt,
                on_saved=self.told.saved,
            )
            for worker in range(self.count)
        ]

    def save(
        self, step: int, tensors: dict[str, torch.Tensor], divided: dict[str, Division]
    ) -> None:
        """Save a state that is divided among the workers; return when it is complete or failed."""
        for worker, saver in enumerate(self.savers):
            saver.save(self.snapshot(worker, step, tensors, divided))
        for saver in self.savers:
            saver.wait()

    def snapshot(
        self, worker: int, step: int, tensors: dict[str, torch.Tensor], divided: dict[str, Division]
    ) -> Snapshot:
        """What one worker holds and writes."""
        sections: dict[str, list[Piece]] = {}
        for name, full in tensors.items():
            extent = divided[name](worker)
            written = extent.written(name, local(full, extent))
            sections.setdefault(name.partition("/")[0], []).extend(written)
        head = Manifest.head(step, samples=10 * step, metrics={"loss": 1 / step})
        filled = {name: pieces for name, pieces in sections.items() if pieces}
        return Snapshot(head, filled, {f"count/{worker % 2}": Scalar(value=step)})


def newest(folder: Path, workers: int = 1) -> tuple[SavedState | None, Told]:
    """The newest good checkpoint, as several workers find it together."""
    told, votes, result = Told(), list[bool](), list[bool]()

    def count() -> None:
        result[:] = [all(votes)]
        votes.clear()

    barrier = threading.Barrier(workers, count)

    def all_agree(good: bool) -> bool:
        votes.append(good)
        barrier.wait(30)
        return result[0]

    def find(worker: int) -> SavedState | None:
        return newest_good(
            Folder(folder),
            worker=worker,
            workers=workers,
            all_agree=all_agree,
            on_damage=told.damaged,
        )

    with ThreadPoolExecutor(workers) as threads:
        return list(threads.map(find, range(workers)))[-1], told


def read(saved: SavedState, name: str, extent: Extent) -> torch.Tensor:
    """A worker's part of a tensor, from a checkpoint."""
    shape = saved.manifest.tensors[name].shape
    tensor = local(torch.full(shape, torch.nan), extent)
    fill(extent.pieces(name, tensor), saved)
    return tensor
