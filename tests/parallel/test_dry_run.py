"""A dry run finds what arithmetic says, and what real ranks do."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.parallel.dry_run import dry_step
from paceline.specs import Layout, RankDryRun
from parallel.dry_runs import (
    BLOCKS,
    LENGTH,
    WIDTH,
    WORDS,
    Decoder,
    decoding,
    first,
    sent_in_a_step,
    tried,
)
from ranks import run_ranks

pytestmark = pytest.mark.slow

PARAMETERS = sum(each.numel() for each in Decoder().parameters())
BLOCK = sum(each.numel() for each in Decoder().blocks[0].parameters())


def calls(dry: RankDryRun, operation: str, dimension: str) -> dict[int, int]:
    """Bytes of a call, and how often it is made."""
    found: Counter[int] = Counter()
    for each in dry.transfers:
        if (each.operation, each.dimension) == (operation, dimension):
            found[each.bytes] += each.count
    return found


def bytes_of(calls: dict[int, int]) -> int:
    return sum(size * count for size, count in calls.items())


class TestAgainstArithmetic:
    @pytest.mark.parametrize("micro_batch", [None, 1])
    def test_replicas_sum_every_gradient_once(self, micro_batch: int | None) -> None:
        layout = Layout(replicas=4, micro_batch=micro_batch, bucket_megabytes=1)
        dry = first(layout)
        assert bytes_of(calls(dry, "all-reduce", "replicas")) == 4 * PARAMETERS
        assert dry.memory.parameters == dry.memory.gradients == 4 * PARAMETERS
        # Two moments for each parameter, and a count of steps for each tensor.
        tensors = sum(1 for _ in Decoder().parameters())
        assert dry.memory.optimizer == 2 * 4 * PARAMETERS + 4 * tensors
        assert dry.memory.communication == 4 * PARAMETERS

    def test_an_average_of_the_weights_is_counted(self) -> None:
        layout = Layout(shards=4)
        plain, averaged = (first(layout, average=each) for each in (None, 0.99))
        more = averaged.memory.optimizer - plain.memory.optimizer
        assert more == plain.memory.parameters == averaged.memory.peak - plain.memory.peak

    @pytest.mark.parametrize("reshard", [True, False])
    def test_shards_gather_weights_twice_and_scatter_gradients_once(self, reshard: bool) -> None:
        dry = first(Layout(shards=4, reshard=reshard))
        rest = PARAMETERS - BLOCKS * BLOCK
        gathered = {4 * BLOCK: BLOCKS * (2 if reshard else 1), 4 * rest: 1}
        assert calls(dry, "all-gather", "shards") == gathered
        assert calls(dry, "reduce-scatter", "shards") == {4 * BLOCK: BLOCKS, 4 * rest: 1}
        assert dry.parameters == PARAMETERS // 4
        assert dry.memory.gradients == PARAMETERS

    @pytest.mark.parametrize(
        ("precision", "replicas"),
        [
            ("bf16", 1),
            *(
                pytest.param(*each, marks=pytest.mark.nightly)
                for each in (("bf16", 2), ("fp16", 1), ("fp16", 2))
            ),
        ],
    )
    def test_shards_send_half_the_bytes_in_lower_precision(
        self, precision: Any, replicas: int
    ) -> None:
        def sent(operation: str, dimension: str, **how: Any) -> int:
            dry = first(Layout(shards=4, replicas=replicas, **how))
            return bytes_of(calls(dry, operation, dimension))

        sums = [("all-reduce", "replicas")] if replicas > 1 else []
        for what in [("all-gather", "shards"), ("reduce-scatter", "shards"), *sums]:
            # Vectors of normalizations stay in fp32.
            assert sent(*what, precision=precision) == pytest.approx(sent(*what) / 2, rel=0.05)
        # Gradients of several micro-batches are added up in fp32.
        scattered = sent("reduce-scatter", "shards", precision=precision, micro_batch=1)
        assert scattered == sent("reduce-scatter", "shards", micro_batch=1)

    def test_micro_batches_of_shards_gather_again_and_scatter_at_the_end(self) -> None:
        dry = first(Layout(shards=2, micro_batch=1))
        rest = PARAMETERS - BLOCKS * BLOCK
        assert calls(dry, "all-gather", "shards") == {4 * BLOCK: 8 * 2 * BLOCKS, 4 * rest: 8}
        assert calls(dry, "reduce-scatter", "shards") == {4 * BLOCK: BLOCKS, 4 * rest: 1}
        # Until then gradients are whole.
        assert dry.memory.gradients >= 4 * PARAMETERS

    def test_replicas_of_shards_sum_what_is_scattered(self) -> None:
        dry = first(Layout(replicas=2, shards=4))
        assert bytes_of(calls(dry, "all-reduce", "replicas")) == PARAMETERS
        assert {each.workers for each in dry.transfers if each.dimension == "shards"} == {4}

    def test_slices_sum_twice_in_a_block_and_twice_in_its_backward(self) -> None:
        dry = first(Layout(tensor=4, replicas=2))
        stream = (16 // 2) * LENGTH * WIDTH * 4
        held = {each.name: each.shape for each in dry.largest}
        assert held["head.weight"] == (WORDS // 4, WIDTH)
        # In the head's backward, too, and after an embedding that is worth slicing.
        ends = 1 if held["embed.weight"] == (WORDS, WIDTH) else 2
        assert calls(dry, "all-reduce", "tensor")[stream] == 4 * BLOCKS + ends
        assert all(each.inside_node for each in dry.transfers)

    def test_stages_pass_on_what_lies_between_blocks(self) -> None:
        found = tried(Layout(pipeline=4, micro_batch=2), devices=2)
        stream = 2 * LENGTH * WIDTH * 4
        for dry in found.ranks:
            neighbours = 2 if 0 < dry.stage < 3 else 1
            assert calls(dry, "send", "pipeline") == {stream: 8 * neighbours}
            assert calls(dry, "receive", "pipeline") == {stream: 8 * neighbours}
        assert [dry.rank for dry in found.ranks] == [0, 1, 2, 3]
        assert [dry.node for dry in found.ranks] == [0, 0, 1, 1]
        inside = [
            {each.inside_node for each in dry.transfers if each.workers == 2} for dry in found.ranks
        ]
        assert inside == [{True}, {True, False}, {True, False}, {True}]

    def test_the_norm_and_the_weights_are_summed_over_all(self) -> None:
        weighed = first(Layout(shards=2, tensor=2), weight=lambda target: (target > 0).sum())
        assert calls(weighed, "all-reduce", "shards x tensor") == {4: 2}


class TestMemory:
    def test_activations_are_what_autograd_keeps(self) -> None:
        """Exactly, but for the loss and its scale, which the step itself holds."""
        kept: dict[int, int] = {}
        model = Decoder()
        weights = {each.untyped_storage().data_ptr() for each in model.parameters()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        training = decoding()
        # A batch has rows of its own; those of the dataset are slices, which a loss would copy.
        text, target = (each.contiguous() for each in training.data[:16])
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            training.loss(model(text), target)
        inputs = {each.untyped_storage().data_ptr() for each in (text, target)}
        expected = sum(size for pointer, size in kept.items() if pointer not in inputs)
        found = first(Layout()).memory.activations
        assert expected <= found <= expected + 64

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

    @pytest.mark.nightly
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


@pytest.mark.nightly
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
    monkeypatch.setattr(dry_step, "_runs", lambda parts, _: [dry_step._Run(parts, 1)])
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
    Layout(replicas=2, shards=2),
    Layout(tensor=2, sequence=True),
    Layout(pipeline=2, replicas=2, schedule="interleaved"),
]
REAL_NIGHTLY = [
    Layout(shards=2, micro_batch=2, recompute="block"),
    Layout(tensor=2),
    Layout(pipeline=2),
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
    for dry in found.ranks:
        assert dry.transfers == real[dry.rank]
