"""A small state, saved and read without a training around it."""

from pathlib import Path

import torch

from paceline.checkpoints.folder import Folder
from paceline.checkpoints.manifest import Manifest, Scalar
from paceline.checkpoints.saver import Cost, Saver, Snapshot
from paceline.checkpoints.storage import Storage
from paceline.checkpoints.tensor_extent import Extent
from paceline.checkpoints.tensor_loading import fill
from paceline.checkpoints.verification import newest_good
from paceline.specs import Saving

SHAPES = {"layer.weight": (40, 30), "layer.bias": (40,), "scale": ()}


def state(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


class Told:
    """What a saver and a loader said."""

    def __init__(self) -> None:
        self.costs: dict[int, Cost] = {}
        self.flaws: dict[int, str] = {}

    def saved(self, step: int, result: Cost | str) -> None:
        if isinstance(result, str):
            self.flaws[step] = result
        else:
            self.costs[step] = result

    def damaged(self, step: int, flaw: str) -> None:
        self.flaws[step] = flaw


class Checkpoints:
    """The checkpoints of one worker in a folder."""

    def __init__(
        self, folder: Path, saving: Saving | None = None, storage: Storage | None = None
    ) -> None:
        self.folder, self.told = folder, Told()
        self.storage: Storage = storage or Folder(folder)
        self.saver = Saver(
            self.storage,
            saving or Saving(keep_last=10),
            worker=0,
            nodes=[[0]],
            attempt=0,
            on_saved=self.told.saved,
        )

    def save(
        self,
        step: int,
        tensors: dict[str, torch.Tensor] | None = None,
        frozen: dict[str, torch.Tensor] | None = None,
        **metrics: float,
    ) -> None:
        head = Manifest.head(
            step,
            samples=step * 10,
            seconds=1.0,
            metrics=metrics,
            values={"groups": [{"lr": 0.1}]},
        )
        sections = {
            section: [
                piece
                for name, tensor in its.items()
                for piece in Extent.everything(tuple(tensor.shape)).written(name, tensor)
            ]
            for section, its in (("model", tensors or state(step)), ("frozen", frozen or {}))
            if its
        }
        self.saver.save(Snapshot(head, sections, {"step": Scalar(value=float(step))}))
        self.saver.wait()

    def newest(self) -> tuple[int, dict[str, torch.Tensor]] | None:
        """The step and the tensors of the newest good checkpoint."""
        saved = newest_good(
            self.storage,
            worker=0,
            workers=1,
            all_agree=lambda good: good,
            on_damage=self.told.damaged,
        )
        if saved is None:
            return None
        found = {name: torch.empty(shape) for name, shape in SHAPES.items()}
        pieces = [
            piece
            for name, tensor in found.items()
            for piece in Extent.everything(tuple(tensor.shape)).pieces(name, tensor)
        ]
        fill(pieces, saved)
        return saved.manifest.step, found

    def steps(self) -> list[int]:
        return self.storage.steps()
