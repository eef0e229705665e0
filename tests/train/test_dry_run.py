"""A dry run finds what arithmetic says, and what real ranks do."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from command import EXAMPLES
from paceline.specs import DryRun, Layout, PacelineError, RankPicture
from paceline.train.rehearse import rehearsal
from paceline.train.rehearse.dry_run import dry_run, training_of
from ranks import run_ranks
from train.rehearsed import BLOCKS, LENGTH, WIDTH, WORDS, Decoder, decoding, sent_in_a_step

PARAMETERS = sum(each.numel() for each in Decoder().parameters())
BLOCK = sum(each.numel() for each in Decoder().blocks[0].parameters())


def tried(layout: Layout, devices: int = 8, **changes: Any) -> DryRun:
    return dry_run(decoding(**changes), layout, devices_per_node=min(devices, layout.workers))


def first(layout: Layout, **changes: Any) -> RankPicture:
    return tried(layout, **changes).ranks[0]


def calls(picture: RankPicture, operation: str, dimension: str) -> dict[int, int]:
    """Bytes of a call, and how often it is made."""
    found: Counter[int] = Counter()
    for each in picture.transfers:
        if (each.operation, each.dimension) == (operation, dimension):
            found[each.bytes] += each.count
    return found


def bytes_of(calls: dict[int, int]) -> int:
    return sum(size * count for size, count in calls.items())


class TestAgainstArithmetic:
    @pytest.mark.parametrize("micro_batch", [None, 1])
    def test_replicas_sum_every_gradient_once(self, micro_batch: int | None) -> None:
        layout = Layout(replicas=4, micro_batch=micro_batch, bucket_megabytes=1)
        picture = first(layout)
        assert bytes_of(calls(picture, "all-reduce", "replicas")) == 4 * PARAMETERS
        assert picture.memory.parameters == picture.memory.gradients == 4 * PARAMETERS
        # Two moments for each parameter, and a count of steps for each tensor.
        tensors = sum(1 for _ in Decoder().parameters())
        assert picture.memory.optimizer == 2 * 4 * PARAMETERS + 4 * tensors
        assert picture.memory.exchange == 4 * PARAMETERS

    @pytest.mark.parametrize("reshard", [True, False])
    def test_shards_gather_weights_twice_and_scatter_gradients_once(self, reshard: bool) -> None:
        picture = first(Layout(shards=4, reshard=reshard))
        rest = PARAMETERS - BLOCKS * BLOCK
        gathered = {4 * BLOCK: BLOCKS * (2 if reshard else 1), 4 * rest: 1}
        assert calls(picture, "all-gather", "shards") == gathered
        assert calls(picture, "reduce-scatter", "shards") == {4 * BLOCK: BLOCKS, 4 * rest: 1}
        assert picture.parameters == PARAMETERS // 4
        assert picture.memory.gradients == PARAMETERS

    def test_micro_batches_of_shards_gather_again_and_scatter_at_the_end(self) -> None:
        picture = first(Layout(shards=2, micro_batch=1))
        rest = PARAMETERS - BLOCKS * BLOCK
        assert calls(picture, "all-gather", "shards") == {4 * BLOCK: 8 * 2 * BLOCKS, 4 * rest: 8}
        assert calls(picture, "reduce-scatter", "shards") == {4 * BLOCK: BLOCKS, 4 * rest: 1}
        # Until then gradients are whole.
        assert picture.memory.gradients >= 4 * PARAMETERS

    def test_replicas_of_shards_sum_what_is_scattered(self) -> None:
        picture = first(Layout(replicas=2, shards=4))
        assert bytes_of(calls(picture, "all-reduce", "replicas")) == PARAMETERS
        assert {each.workers for each in picture.transfers if each.dimension == "shards"} == {4}

    def test_slices_sum_twice_in_a_block_and_twice_in_its_backward(self) -> None:
        picture = first(Layout(tensor=4, replicas=2))
        stream = (16 // 2) * LENGTH * WIDTH * 4
        held = {each.name: each.shape for each in picture.largest}
        assert held["head.weight"] == (WORDS // 4, WIDTH)
        # In the head's backward, too, and after an embedding that is worth slicing.
        ends = 1 if held["embed.weight"] == (WORDS, WIDTH) else 2
        assert calls(picture, "all-reduce", "tensor")[stream] == 4 * BLOCKS + ends
        assert all(each.inside_node for each in picture.transfers)

    def test_stages_pass_on_what_lies_between_blocks(self) -> None:
        found = tried(Layout(pipeline=4, micro_batch=2), devices=2)
        stream = 2 * LENGTH * WIDTH * 4
        for picture in found.ranks:
            neighbours = 2 if 0 < picture.stage < 3 else 1
            assert calls(picture, "send", "pipeline") == {stream: 8 * neighbours}
            assert calls(picture, "receive", "pipeline") == {stream: 8 * neighbours}
        assert [picture.rank for picture in found.ranks] == [0, 1, 2, 3]
        assert [picture.node for picture in found.ranks] == [0, 0, 1, 1]
        inside = [
            {each.inside_node for each in picture.transfers if each.workers == 2}
            for picture in found.ranks
        ]
        assert inside == [{True}, {True, False}, {True, False}, {True}]

    def test_the_norm_and_the_weights_are_summed_over_all(self) -> None:
        weighed = first(Layout(shards=2, tensor=2), weight=lambda target: (target > 0).sum())
        assert calls(weighed, "all-reduce", "shards x tensor") == {4: 2}


class TestMemory:
    def test_activations_are_what_autograd_keeps(self) -> None:
        """Exactly, but for the output, the loss and its scale, which the step itself holds."""
        kept: dict[int, int] = {}
        model = Decoder()
        weights = {each.untyped_storage().data_ptr() for each in model.parameters()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        training = decoding()
        text, target = training.data[:16]
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            logits = model(text)
            training.loss(logits, target)
        inputs = {each.untyped_storage().data_ptr() for each in (text, target)}
        expected = sum(size for pointer, size in kept.items() if pointer not in inputs)
        found = first(Layout()).memory.activations
        assert expected <= found <= expected + logits.nbytes + 64

    def test_recomputation_keeps_less(self) -> None:
        none, selective, block = (
            first(Layout(recompute=how)).memory for how in ("none", "selective", "block")
        )
        assert block.activations < selective.activations < none.activations
        stream = 16 * LENGTH * WIDTH * 4
        # The input of every block but the first, and all that one block keeps.
        one_block = (none.activations - block.activations) / (BLOCKS - 1) + stream
        assert block.activations >= BLOCKS * stream + one_block - 4 * stream
        assert none.peak > block.peak

    def test_schedules_keep_as_many_micro_batches_as_they_should(self) -> None:
        def kept(schedule: Any, micro_batches: int) -> list[int]:
            layout = Layout(pipeline=4, schedule=schedule, micro_batch=16 // micro_batches)
            return [each.memory.activations for each in tried(layout).ranks]

        one_after_another, all_at_once = kept("1f1b", 16), kept("gpipe", 16)
        assert one_after_another == sorted(one_after_another, reverse=True)
        for few, many in zip(one_after_another, all_at_once, strict=True):
            assert few < many

    def test_lower_precision_keeps_less_and_adds_the_verdict_on_overflow(self) -> None:
        whole = first(Layout(tensor=2))
        half = first(Layout(tensor=2, precision="fp16"))
        assert half.memory.activations < whole.memory.activations
        assert half.memory.optimizer == whole.memory.optimizer
        assert calls(half, "all-reduce", "tensor")[4] == calls(whole, "all-reduce", "tensor")[4] + 1


LONG = [
    Layout(replicas=2, micro_batch=1),
    Layout(shards=2, micro_batch=1),
    Layout(shards=2, reshard=False, micro_batch=1),
    Layout(replicas=2, shards=2, micro_batch=1, recompute="block"),
    Layout(tensor=2, micro_batch=3),  # the last one has 2
    Layout(pipeline=2, micro_batch=1),
    Layout(pipeline=2, micro_batch=1, schedule="gpipe"),
    Layout(pipeline=2, micro_batch=1, schedule="interleaved"),
    Layout(pipeline=2, micro_batch=1, schedule="zero-bubble"),
    Layout(pipeline=2, shards=2, micro_batch=1),
]


EVERY_DAY = (LONG[3], LONG[4], LONG[7])


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(
            each,
            id=str(each.model_dump(exclude_defaults=True)),
            marks=[] if each in EVERY_DAY else pytest.mark.nightly,
        )
        for each in LONG
    ],
)
def test_many_micro_batches_follow_from_few(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = tried(layout, batch=20)
    assert short.micro_batches_run < short.micro_batches
    monkeypatch.setattr(rehearsal, "_runs", lambda parts, _: [rehearsal._Run(parts, 1)])
    whole = tried(layout, batch=20)
    assert whole.micro_batches_run == whole.micro_batches
    for one, other in zip(short.ranks, whole.ranks, strict=True):
        assert one.transfers == other.transfers
        # But for losses and other single numbers.
        assert one.memory.model_dump() == pytest.approx(other.memory.model_dump(), abs=1024)


REAL = [
    Layout(replicas=2, bucket_megabytes=1),
    Layout(replicas=2, micro_batch=2),
    Layout(shards=2),
    Layout(shards=2, micro_batch=2, recompute="block"),
    Layout(replicas=2, shards=2),
    Layout(tensor=2),
    Layout(tensor=2, sequence=True),
    Layout(pipeline=2),
    Layout(pipeline=2, replicas=2, schedule="interleaved"),
]
REAL_NIGHTLY = [
    Layout(tensor=2, shards=2, precision="bf16"),
    Layout(pipeline=2, shards=2),
    Layout(pipeline=2, tensor=2),
]


@pytest.mark.parametrize(
    "layout",
    [*REAL, *(pytest.param(each, marks=pytest.mark.nightly) for each in REAL_NIGHTLY)],
    ids=lambda each: str(each.model_dump(exclude_defaults=True)),
)
def test_real_ranks_send_the_same(layout: Layout, tmp_path: Path) -> None:
    found = tried(layout)
    real = run_ranks(sent_in_a_step, layout.workers, tmp_path, layout, layout=layout)
    for picture in found.ranks:
        assert picture.transfers == real[picture.rank]


degrees = st.integers(1, 12)


@given(pipeline=degrees, replicas=degrees, shards=degrees, tensor=degrees, data=st.data())
def test_every_worker_has_a_position_of_its_own(
    pipeline: int, replicas: int, shards: int, tensor: int, data: st.DataObject
) -> None:
    layout = Layout(pipeline=pipeline, replicas=replicas, shards=shards, tensor=tensor)
    rank = data.draw(st.integers(0, layout.workers - 1))
    position = layout.position(rank)
    back = ((position.stage * replicas + position.replica) * shards + position.shard) * tensor
    assert back + position.slice == rank
    sizes = (pipeline, replicas, shards, tensor)
    assert all(0 <= number < size for number, size in zip(position, sizes, strict=True))
    if position.slice < tensor - 1:
        assert layout.position(rank + 1) == position._replace(slice=position.slice + 1)
    elif position.shard < shards - 1:
        assert layout.position(rank + 1) == position._replace(shard=position.shard + 1, slice=0)


def test_positions_of_a_hundred_thousand_workers() -> None:
    layout = Layout(pipeline=10, replicas=25, shards=50, tensor=8)
    assert layout.workers == 100_000
    assert len({layout.position(rank) for rank in range(layout.workers)}) == layout.workers
    parts = Counter(layout.data_rank(rank) for rank in range(layout.workers))
    assert set(parts.values()) == {layout.tensor * layout.pipeline}
    assert set(parts) == set(range(layout.data_workers))


class Many(Dataset[Any]):
    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(LENGTH, dtype=torch.long), torch.zeros(LENGTH, dtype=torch.long)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(replicas=100_000),
        Layout(shards=25_000, tensor=4),
        pytest.param(
            Layout(pipeline=4, replicas=50, shards=125, tensor=4), marks=pytest.mark.nightly
        ),
    ],
    ids=["replicas", "shards", "all"],
)
def test_a_hundred_thousand_devices(layout: Layout) -> None:
    found = tried(layout, data=Many(), batch=200_000)
    assert found.nodes == 12_500
    assert [each.stage for each in found.ranks] == list(range(layout.pipeline))
    assert found.seconds < 60


class TestMistakes:
    """What would strike on the cluster strikes here, in the same words."""

    @pytest.mark.parametrize(
        ("layout", "changes", "said"),
        [
            (Layout(replicas=32), {}, "the global batch is 16, but there are 32 workers"),
            (Layout(pipeline=8), {}, "8 pipeline stages need as many blocks, but Decoder has 4"),
            (
                Layout(tensor=2),
                {"model": lambda: nn.Embedding(WORDS, WORDS)},
                "tensor=2 was given, but no layer of Embedding can be sliced",
            ),
            (
                Layout(replicas=2),
                {"model": lambda: nn.Sequential(nn.Embedding(WORDS, WORDS), Turned())},
                "the model normalises over the batch in 1.norm, but a batch is divided",
            ),
            (Layout(replicas=2, speeds=(1, 2, 3)), {}, "3 speeds, but the run has 1 nodes"),
            (Layout(replicas=2), {"loss": lambda output, target: output}, "not a scalar tensor"),
        ],
    )
    def test_of_layouts(self, layout: Layout, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(PacelineError, match=re.escape(said)):
            tried(layout, **changes)
        assert not torch.distributed.is_initialized()

    @pytest.mark.parametrize(
        ("layout", "asks", "said"),
        [
            (
                Layout(shards=2),
                lambda x: x * 2 if x.sum() > 0 else x,
                "asks for the number in a tensor",
            ),
            (Layout(pipeline=2), lambda x: x * x.max().item(), "asks for the number in a tensor"),
            (
                Layout(tensor=2),
                lambda x: x + x[x > 0].mean(),
                "gives a tensor whose shape depends on numbers",
            ),
            (
                Layout(),
                lambda x: x * float(x.detach().numpy().mean()),
                "asks for an array of NumPy",
            ),
        ],
    )
    def test_code_that_asks_for_numbers_is_named(
        self, layout: Layout, asks: Any, said: str
    ) -> None:
        class Asking(Decoder):
            def forward(self, text: torch.Tensor) -> torch.Tensor:
                logits: torch.Tensor = asks(super().forward(text))
                return logits

        with pytest.raises(PacelineError) as error:
            tried(layout, model=Asking)
        assert said in error.value.problem
        assert "test_dry_run.py, line" in error.value.problem
        assert "lambda x: x" in error.value.problem
        assert "torch.where" in error.value.fix

    def test_an_error_of_the_model_is_its_own(self) -> None:
        with pytest.raises(RuntimeError, match="must have same reduction dim"):
            tried(
                Layout(shards=2),
                model=lambda: nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(3, 3)),
            )


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WORDS)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(values.transpose(1, 2)).transpose(1, 2)
        return out


def test_weights_from_files_are_not_read_into_memory_for_good(tmp_path: Path) -> None:
    """A model that reads its weights, or has some from NumPy, is tried like any other."""
    torch.save(Decoder().state_dict(), tmp_path / "weights.pt")

    class Read(Decoder):
        def __init__(self) -> None:
            super().__init__()
            self.load_state_dict(torch.load(tmp_path / "weights.pt"))
            self.embed.weight = nn.Parameter(torch.from_numpy(np.zeros((WORDS, WIDTH), "f4")))
            self.register_buffer("more", torch.from_numpy(np.zeros(3)))

    read, built = first(Layout(shards=2), model=Read), first(Layout(shards=2))
    assert read.memory.peak == built.memory.peak + 24  # the buffer
    assert read.transfers == built.transfers


def test_dropout_and_other_random_numbers() -> None:
    class Dropping(Decoder):
        def forward(self, text: torch.Tensor) -> torch.Tensor:
            return F.dropout(super().forward(text), 0.1)

    for layout in (Layout(replicas=2), Layout(tensor=2), Layout(pipeline=2, recompute="block")):
        assert tried(layout, model=Dropping).ranks


def test_the_dataset_is_hardly_read() -> None:
    read: list[int] = []

    class Noted(Many):
        def __getitem__(self, index: int) -> Any:
            read.append(index)
            assert float(torch.rand(1)) < 2  # with numbers, unlike the model
            return super().__getitem__(index)

    tried(Layout(replicas=2, micro_batch=4), data=Noted(), batch=1000)
    assert len(read) <= 3


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "layout",
    [
        Layout(replicas=2, shards=64, tensor=8, micro_batch=1, recompute="block"),
        Layout(pipeline=8, replicas=8, shards=16, micro_batch=1, recompute="selective"),
    ],
    ids=["tensor", "pipeline"],
)
def test_seven_billion_parameters_on_1024_devices(layout: Layout) -> None:
    training = training_of(EXAMPLES / "dry_run" / "train.py", "training")
    found = dry_run(training, layout, devices_per_node=8)
    assert found.parameters == 6_738_415_616
    assert found.nodes == 128
    assert found.seconds < 60
