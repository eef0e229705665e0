"""Batch normalization over a divided batch: what is synchronized equals one process."""

import copy
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from paceline.parallel.batch_norm import average_running_statistics, prepare_batch_norm
from paceline.parallel.blocks.recompute import recompute
from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Layout, Run
from paceline.train.elastic.joined_groups import joined
from parallel.normalized import CHANNELS, blocks, rows
from ranks import run_ranks

STEPS = 2
EXACT = {torch.float32: 1e-6, torch.float64: 1e-13}

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.BatchNorm1d(CHANNELS), ()),
    "1d of sequences": (lambda: nn.BatchNorm1d(CHANNELS), (6,)),
    "2d": (lambda: nn.BatchNorm2d(CHANNELS), (3, 2)),
    "3d": (lambda: nn.BatchNorm3d(CHANNELS), (2, 1, 3)),
    "torch's synchronized one": (lambda: nn.SyncBatchNorm(CHANNELS), (3,)),
    "mean over all batches": (lambda: nn.BatchNorm2d(CHANNELS, momentum=None), (3, 2)),
    "no parameters": (lambda: nn.BatchNorm1d(CHANNELS, affine=False), ()),
    "no running statistics": (lambda: nn.BatchNorm1d(CHANNELS, track_running_stats=False), ()),
}


def joined_workers(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives that gets the group of all workers, and is to keep nothing of it."""
    folder = run_folder()
    assert folder is not None
    with joined(Run.open(folder), placement(), torch.device("cpu"), None):
        return function(dist.group.WORLD, *arguments)


def mine(batch: torch.Tensor, shares: tuple[int, ...]) -> torch.Tensor:
    """This worker's rows of a batch; the first row where its share is nothing."""
    end = list(accumulate(shares))[placement().rank]
    own = shares[placement().rank]
    return batch[end - own : end] if own else batch[:1]


def summed(tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    tensor = tensor.clone()
    dist.all_reduce(tensor, group=group)
    return tensor


def set_apart(layer: nn.Module) -> nn.Module:
    """Parameters as after some training."""
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.add_(torch.linspace(-0.5, 0.8 + number, parameter.numel()))
    return layer


def synchronized(group: dist.ProcessGroup, all_shares: list[tuple[int, ...]]) -> None:
    for shares in all_shares:
        for build, shape in LAYERS.values():
            for dtype in EXACT:
                compare(set_apart(build().to(dtype)), dtype, shape, shares, group)


def compare(
    alone: nn.Module,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    shares: tuple[int, ...],
    group: dist.ProcessGroup,
) -> None:
    """Some steps of a layer here and on one process; all that comes out is equal."""
    layer = copy.deepcopy(alone)
    layout = Layout(replicas=len(shares), batch_norm="synchronized")
    norms = prepare_batch_norm(layer, layout, group, micro_batches=1)
    assert list(layer.state_dict()) == list(alone.state_dict())
    own = shares[placement().rank]
    exactly: dict[str, Any] = {"rtol": EXACT[dtype], "atol": EXACT[dtype]}
    for step in range(STEPS):
        batch = rows(step, sum(shares), *shape).to(dtype)
        slope = rows(step + 100, sum(shares), *shape).to(dtype) / 10
        whole = batch.clone().requires_grad_()
        # SyncBatchNorm's own forward wants a GPU.
        expected = nn.modules.batchnorm._BatchNorm.forward(alone, whole)  # type: ignore[arg-type]
        torch.autograd.backward((expected.sin() * slope).sum())
        part = mine(batch, shares).clone().requires_grad_()
        with norms.counting(own, own or 1):
            output = layer(part)
            torch.autograd.backward((output.sin() * mine(slope, shares) * bool(own)).sum())
        assert output.isfinite().all()
        assert part.grad is not None
        assert whole.grad is not None
        if own:
            assert_close(output, mine(expected, shares), **exactly)
            assert_close(part.grad, mine(whole.grad, shares), **exactly)
        else:
            assert not part.grad.any()
    for one, all_in_one in zip(layer.parameters(), alone.parameters(), strict=True):
        assert one.grad is not None
        assert_close(summed(one.grad, group), all_in_one.grad, **exactly)
    for name, buffer in layer.named_buffers():
        assert_close(buffer, alone.get_buffer(name), **exactly)
    with norms.counting(own, own or 1):
        output = layer.eval()(mine(batch, shares))
    expected = nn.modules.batchnorm._BatchNorm.forward(alone.eval(), batch)  # type: ignore[arg-type]
    if own:
        assert_close(output, mine(expected, shares), **exactly)
    norms.close()


@pytest.mark.parametrize(
    "shares", [[(5, 2), (1, 1), (3, 0)], [(4, 1, 2), (0, 2, 5)]], ids=["2 workers", "3 workers"]
)
def test_synchronized_layers_equal_one_process(
    shares: list[tuple[int, ...]], tmp_path: Path
) -> None:
    run_ranks(joined_workers, len(shares[0]), tmp_path, synchronized, shares)


def train(
    model: nn.Module,
    call: Callable[[torch.Tensor], torch.Tensor],
    batches: Iterator[tuple[torch.Tensor, float]],
) -> dict[str, torch.Tensor]:
    """Steps on batches, whose mean loss has the given weight; parameters and buffers after it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch, weight in batches:
        torch.autograd.backward(call(batch).square().mean() * weight)
        optimizer.step()
        optimizer.zero_grad()
    state: dict[str, Any] = model.state_dict()
    return {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value
        for name, value in state.items()
    }


def trained_as_a_trainer_does(group: dist.ProcessGroup, layout: Layout) -> None:
    """Gradients are averaged over workers, and losses scaled for it, as in `Trainer`."""
    all_shares = [(5, 2), (3, 0), (1, 4)]
    batches = [rows(step, sum(shares)) for step, shares in enumerate(all_shares)]
    alone, model = blocks(), blocks()
    norms = prepare_batch_norm(model, layout, group, micro_batches=1)
    recompute(model, layout, norms.again)
    if layout.shards > 1:
        from torch.distributed.fsdp import fully_shard

        for block in model:
            fully_shard(block)
        fully_shard(model)
    call = model if layout.shards > 1 else DistributedDataParallel(model)

    def parts() -> Iterator[tuple[torch.Tensor, float]]:
        for batch, shares in zip(batches, all_shares, strict=True):
            own = shares[placement().rank]
            with norms.counting(own, own or 1):
                yield mine(batch, shares), own * layout.data_workers / sum(shares)

    found = train(model, call, parts())
    expected = train(alone, alone, ((batch, 1.0) for batch in batches))
    assert_close(found, expected, rtol=1e-6, atol=1e-6)
    norms.close()


@pytest.mark.parametrize(
    "layout",
    [
        Layout(replicas=2, batch_norm="synchronized"),
        Layout(replicas=2, batch_norm="synchronized", recompute="selective"),
        Layout(shards=2, batch_norm="synchronized", recompute="block"),
    ],
    ids=["replicas", "replicas, recompute selectively", "shards, recompute blocks"],
)
def test_a_training_with_unequal_shares_equals_one_process(layout: Layout, tmp_path: Path) -> None:
    run_ranks(joined_workers, 2, tmp_path, trained_as_a_trainer_does, layout)


def tracked_once(mode: Any) -> None:
    batches = [rows(step, 6) for step in range(STEPS)]
    plain, model = blocks(), blocks()
    expected = train(plain, plain, ((batch, 1.0) for batch in batches))
    layout = Layout(recompute=mode)
    norms = prepare_batch_norm(model, layout, None, micro_batches=1)
    recompute(model, layout, norms.again)
    found = train(model, model, ((batch, 1.0) for batch in batches))
    assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["block", "selective"])
def test_what_is_computed_again_is_tracked_once(mode: str, tmp_path: Path) -> None:
    """Fails when torch no longer says, by its private means, that backward is under way."""
    run_ranks(tracked_once, 1, tmp_path, mode)


def on_one_worker_only(group: dist.ProcessGroup) -> None:
    layer, plain = nn.BatchNorm1d(CHANNELS), nn.BatchNorm1d(CHANNELS)
    layout = Layout(replicas=2, batch_norm="synchronized")
    norms = prepare_batch_norm(layer, layout, group, micro_batches=1)
    layer(rows(0, 3))
    if placement().rank == 0:
        plain.load_state_dict(layer.state_dict())
        assert_close(layer.eval()(rows(1, 3)), plain.eval()(rows(1, 3)))
    norms.close()


def test_evaluation_with_running_statistics_needs_nobody_else(tmp_path: Path) -> None:
    run_ranks(joined_workers, 2, tmp_path, on_one_worker_only)


def in_lower_precision(group: dist.ProcessGroup) -> None:
    layer, plain = nn.BatchNorm1d(CHANNELS), nn.BatchNorm1d(CHANNELS)
    layout = Layout(replicas=2, batch_norm="synchronized", precision="bf16")
    norms = prepare_batch_norm(layer, layout, group, micro_batches=1)
    batch = rows(0, 9, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(mine(batch, (6, 3)).bfloat16())
        expected = mine(plain(batch.bfloat16()), (6, 3))
    output.float().square().sum().backward()
    assert output.dtype == expected.dtype == torch.bfloat16
    assert_close(output, expected)
    assert_close(layer.running_var, plain.running_var)
    norms.close()


def test_statistics_of_lower_precision_are_taken_in_float32(tmp_path: Path) -> None:
    run_ranks(joined_workers, 2, tmp_path, in_lower_precision)


def averaged(group: dist.ProcessGroup) -> tuple[list[float], list[float], int]:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(1, track_running_stats=False))
    layer: Any = model[0]
    layer.running_mean.fill_(1.0 + placement().rank)
    layer.running_var.fill_(0.1 * 3 ** placement().rank)
    layer.num_batches_tracked.fill_(7)
    average_running_statistics(model, group)
    before = copy.deepcopy(model.state_dict())
    average_running_statistics(model, group)
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    return layer.running_mean.tolist(), layer.running_var.tolist(), int(layer.num_batches_tracked)


def test_running_statistics_are_averaged(tmp_path: Path) -> None:
    for mean, variance, batches in run_ranks(joined_workers, 2, tmp_path, averaged):
        assert mean == [1.5, 1.5]
        assert variance == pytest.approx([0.2, 0.2])
        assert batches == 7
