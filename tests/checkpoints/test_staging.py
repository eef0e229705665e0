"""Snapshots one after the other: memory and the outline of files are kept, never the contents."""

import pytest
import torch

from paceline.checkpoints.manifest import Manifest
from paceline.checkpoints.pages.outline import Outline
from paceline.checkpoints.saver import Snapshot
from paceline.checkpoints.staging import Staging
from paceline.checkpoints.tensor_extent import Extent, Piece
from paceline.peers.memory_file import Pool
from paceline.peers.part_files import PartFiles, laid_out
from paceline.specs import PacelineError


def pieces(**tensors: torch.Tensor) -> dict[str, list[Piece]]:
    return {
        "model": [
            piece
            for name, tensor in tensors.items()
            for piece in Extent.everything(tuple(tensor.shape)).pieces(name, tensor)
        ]
    }


def test_memory_is_kept_and_the_contents_are_the_newest() -> None:
    staging, weight = Staging(), torch.zeros(2, 3)
    first = staging.copied(pieces(weight=weight))
    weight += 1
    assert first["model"][0].tensor.sum() == 0
    second = staging.copied(pieces(weight=weight))
    assert second is first
    assert second["model"][0].tensor.tolist() == weight.tolist()


@pytest.mark.parametrize(
    "other",
    [
        pieces(weight=torch.ones(3, 2)),
        pieces(weight=torch.ones(2, 3, dtype=torch.float64)),
        pieces(heavier=torch.ones(2, 3)),
        pieces(weight=torch.ones(2, 3), bias=torch.ones(3)),
    ],
    ids=["shape", "type", "name", "number"],
)
def test_other_pieces_have_other_memory(other: dict[str, list[Piece]]) -> None:
    staging = Staging()
    first = staging.copied(pieces(weight=torch.zeros(2, 3)))
    second = staging.copied(other)
    assert second is not first
    for staged, given in zip(second["model"], other["model"], strict=True):
        assert (staged.name, staged.box) == (given.name, given.box)
        assert torch.equal(staged.tensor, given.tensor)


def test_files_are_those_that_an_outline_made_for_them_gives() -> None:
    """Steps that change values, then a piece more: with one outline as with a new one for each."""
    staging, kept, pool = Staging(), Outline(0), Pool()
    weight, moment = torch.zeros(50, 3), torch.zeros(7, dtype=torch.int64)
    for step in range(1, 5):
        weight += 1
        sections = pieces(weight=weight, **({"moment": moment} if step > 2 else {}))
        snapshot = Snapshot(Manifest.head(step), staging.copied(sections), {})
        with_kept = laid_out(snapshot, kept, pool)
        assert _bytes(with_kept) == _bytes(laid_out(snapshot, Outline(0), pool))
        assert ("moment" in with_kept.description.structure.names) == (step > 2)
        assert _bytes(with_kept)[1].count(torch.tensor(float(step)).numpy().tobytes()) == 150
    pool.close()


def test_pieces_that_no_file_can_hold_are_refused_again() -> None:
    """A second save of the same buffers must not pass for one that has followed them."""
    outline, sections = Outline(0), pieces(odd=torch.zeros(3, dtype=torch.complex64))
    for _ in range(2):
        with pytest.raises(PacelineError, match="complex64"):
            outline.follow(sections)


def _bytes(part: PartFiles) -> tuple[str, bytes]:
    contents = b"".join(bytes(view) for view in part.views(0, part.size))
    return part.description.model_dump_json(), contents
