"""What a worker says of its part, which every worker that restores from peers reads."""

import torch

from paceline.checkpoints.manifest import FileRecord, Manifest, Scalar
from paceline.checkpoints.pages.outline import Outline
from paceline.checkpoints.pages.packed import unpacked
from paceline.checkpoints.tensor_extent import Box, Piece
from paceline.peers.part_files import PartDescription

TENSORS, WIDTH = 300, 4096


def described(workers: int) -> PartDescription:
    """One of several shards of weights and two moments each, without their data."""
    rows = -(-WIDTH // workers)
    box, tensor = Box((rows, 0), (rows, WIDTH)), torch.empty(rows, WIDTH, device="meta")
    sections = {
        section: [
            Piece(f"{section}/layers.{number}.weight{key}", (WIDTH, WIDTH), box, tensor)
            for number in range(TENSORS)
            for key in keys
        ]
        for section, keys in (("model", [""]), ("optimizer", ["/exp_avg", "/exp_avg_sq"]))
    }
    outline = Outline(1)
    outline.follow(sections)
    records = [FileRecord(bytes=file.bytes, blake3="0" * 64) for file in outline.files]
    scalars = {
        f"optimizer/layers.{number}.weight/step": Scalar(value=10.0, dtype="float32")
        for number in range(TENSORS)
    }
    return PartDescription(
        head=Manifest.head(10),
        part=outline.part(records),
        structure=outline.structure,
        scalars=scalars,
    )


def test_it_is_small_and_does_not_grow_with_the_workers() -> None:
    sizes = [len(described(workers).packed) for workers in (8, 64, 1000)]
    assert max(sizes) < 12_000
    assert sizes[2] <= sizes[0]


def test_it_comes_back_whole() -> None:
    one = described(1000)
    assert unpacked(PartDescription, one.packed, 1 << 20)[0] == one
