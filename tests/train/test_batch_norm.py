"""Batch normalisation over a divided batch: what is synchronised equals one process."""

import copy
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from paceline.specs import Layout, PacelineError, Run
from paceline.train.joining import joined
from paceline.train.layouts.batch_norm import average_running_statistics, prepare_batch_norm
from paceline.train.layouts.recompute import recompute
from paceline.train.place import place, run_folder
from ranks import run_ranks

CHANNELS, STEPS = 4, 2
EXACT = {torch.float32: 1e-6, torch.float64: 1e-13}

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.BatchNorm1d(CHANNELS), ()),
    "1d of sequences": (lambda: nn.BatchNorm1d(CHANNELS), (6,)),
    "2d": (lambda: nn.BatchNorm2d(CHANNELS), (3, 2)),
    "3d": (lambda: nn.BatchNorm3d(CHANNELS), (2, 1, 3)),
    "torch's synchronised one": (lambda: nn.SyncBatchNorm(CHANNELS), (3,)),
    "mean over all batches": (lambda: nn.BatchNorm2d(CHANNELS, momentum=None), (3, 2)),
    "no parameters": (lambda: nn.BatchNorm1d(CHANNELS, affine=False), ()),
    "no running statistics": (lambda: nn.BatchNorm1d(CHANNELS, track_running_stats=False), ()),
}


def joined_workers(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives that gets the group of all workers, and is to keep nothing of it."""
    folder = run_folder()
    assert folder is not None
    with joined(Run.open(folder), place(), torch.device("cpu"), None):
        return function(dist.group.WORLD, *arguments)


def rows(step: int, count: int, *shape: int) -> torch.Tensor:
    """A batch whose channels have means and deviations of their own; the same on every worker."""
    generator = torch.Generator().manual_seed(step)
    batch = torch.randn(count, CHANNELS, *shape, generator=generator)
    spread = torch.arange(1.0, CHANNELS + 1).view(-1, *[1] * len(shape))
    return batch * spread + 2 - spread


def mine(batch: torch.Tensor, shares: tuple[int, ...]) -> torch.Tensor:
    """This worker's rows of a batch; the first row where its share is nothing."""
    end = list(accumulate(shares))[place().rank]
    own = shares[place().rank]
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


def synchronised(group: dist.ProcessGroup, all_shares: list[tuple[int, ...]]) -> None:
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
    layout = Layout(replicas=len(shares), batch_norm="synchronised")
    norms = prepare_batch_norm(layer, layout, group, micro_batches=1)
    assert list(layer.state_dict()) == list(alone.state_dict())
    own = shares[place().rank]
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
def test_synchronised_layers_equal_one_process(
    shares: list[tuple[int, ...]], tmp_path: Path
) -> None:
    run_ranks(joined_workers, len(shares[0]), tmp_path, synchronised, shares)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(CHANNELS, CHANNELS), nn.BatchNorm1d(CHANNELS)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = stream + self.norm(self.layer(stream)).relu()
        return out


def blocks() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(Block(), Block(), Block())


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
            own = shares[place().rank]
            with norms.counting(own, own or 1):
                yield mine(batch, shares), own * layout.data_workers / sum(shares)

    found = train(model, call, parts())
    expected = train(alone, alone, ((batch, 1.0) for batch in batches))
    assert_close(found, expected, rtol=1e-6, atol=1e-6)
    norms.close()


@pytest.mark.parametrize(
    "layout",
    [
        Layout(replicas=2, batch_norm="synchronised"),
        Layout(replicas=2, batch_norm="synchronised", recompute="selective"),
        Layout(shards=2, batch_norm="synchronised", recompute="block"),
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
    layout = Layout(replicas=2, batch_norm="synchronised")
    norms = prepare_batch_norm(layer, layout, group, micro_batches=1)
    layer(rows(0, 3))
    if place().rank == 0:
        plain.load_state_dict(layer.state_dict())
        assert_close(layer.eval()(rows(1, 3)), plain.eval()(rows(1, 3)))
    norms.close()


def test_evaluation_with_running_statistics_needs_nobody_else(tmp_path: Path) -> None:
    run_ranks(joined_workers, 2, tmp_path, on_one_worker_only)


def in_lower_precision(group: dist.ProcessGroup) -> None:
    layer, plain = nn.BatchNorm1d(CHANNELS), nn.BatchNorm1d(CHANNELS)
    layout = Layout(replicas=2, batch_norm="synchronised", precision="bf16")
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
    layer.running_mean.fill_(1.0 + place().rank)
    layer.running_var.fill_(0.1 * 3 ** place().rank)
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


def local(**changes: Any) -> tuple[nn.BatchNorm1d, Any]:
    layer = nn.BatchNorm1d(CHANNELS, **changes)
    layout = Layout(replicas=2, batch_norm="local")
    return layer, prepare_batch_norm(layer, layout, None, micro_batches=1)


def test_local_layers_compute_as_without_us() -> None:
    (layer, norms), plain = local(), nn.BatchNorm1d(CHANNELS)
    with norms.counting(5, 5):
        assert_close(layer(rows(0, 5)), plain(rows(0, 5)), rtol=0, atol=0)
    assert_close(layer.state_dict(), plain.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("track", [True, False])
def test_a_borrowed_sample_leaves_nothing_in_local_statistics(track: bool) -> None:
    layer, norms = local(track_running_stats=track)
    before = copy.deepcopy(layer.state_dict())
    with norms.counting(0, 1):
        output = layer(rows(0, 1))
        (output.sum() * 0).backward()
    assert output.isfinite().all()
    assert layer.weight.grad is not None
    assert_close(layer.state_dict(), before, rtol=0, atol=0)


def test_rows_that_fill_a_part_up_count_for_nothing() -> None:
    (layer, norms), plain = local(), nn.BatchNorm1d(CHANNELS)
    batch = rows(0, 3, 2)
    filled = torch.cat([batch, batch[:1], batch[:1]]).requires_grad_()
    with norms.counting(3, 5):
        output = layer(filled)
    assert output.shape == filled.shape
    assert_close(output[:3], plain(batch), rtol=0, atol=0)
    assert_close(layer.state_dict(), plain.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("times", [1, 2])
def test_a_checkpoint_remembers_what_counted(times: int) -> None:
    """Also where backward comes later and in several steps, as in a pipeline."""
    (layer, norms), plain = local(), nn.BatchNorm1d(CHANNELS)
    batch = rows(0, 5).requires_grad_()
    with norms.counting(3, 5):
        found: torch.Tensor = checkpoint(layer, batch, use_reentrant=False, context_fn=norms.again)
    expected = plain(batch[:3])
    for _ in range(times):
        (of_found,) = torch.autograd.grad(found[:3].sin().sum(), batch, retain_graph=True)
    (of_expected,) = torch.autograd.grad(expected.sin().sum(), batch)
    assert_close(of_found, of_expected)
    assert_close(layer.state_dict(), plain.state_dict(), rtol=0, atol=0)


def test_a_part_of_one_sample_has_no_statistics() -> None:
    layer, norms = local()
    with (
        norms.counting(1, 1),
        pytest.raises(PacelineError, match="BatchNorm1d has a single value per channel") as error,
    ):
        layer(rows(0, 1))
    assert "`--batch-norm synchronised`" in error.value.fix


class Activated(nn.BatchNorm1d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return F.relu(super().forward(input))


@pytest.mark.parametrize(
    ("model", "layout", "micro_batches", "problem", "fix"),
    [
        (
            nn.Sequential(*(nn.BatchNorm2d(2) for _ in range(5))),
            Layout(replicas=2),
            1,
            "in 0, 1, 2 and 2 more, but a batch is divided over 2 workers: the statistics",
            "local` (each worker's micro-batch has its own statistics: faster; the training"
            " differs from one device's) or `--batch-norm synchronised` (as on one device: two",
        ),
        (
            nn.SyncBatchNorm(2),
            Layout(shards=3),
            4,
            "in SyncBatchNorm, but a batch is divided over 3 workers and 4 micro-batches:",
            "or, without --micro-batch and pipeline, `--batch-norm synchronised`",
        ),
        (
            blocks(),
            Layout(micro_batch=4),
            3,
            "in 0.norm, 1.norm, 2.norm, but a batch is divided over 3 micro-batches:",
            "give `--batch-norm local`",
        ),
        (
            blocks(),
            Layout(micro_batch=4, batch_norm="synchronised"),
            2,
            "passes as 2 micro-batches, one after the other",
            "train without --micro-batch and pipeline, or give `--batch-norm local`",
        ),
        (
            nn.Sequential(Activated(2), nn.BatchNorm1d(2)),
            Layout(replicas=2, batch_norm="synchronised"),
            1,
            "a forward of their own keeps 0 from sharing",
            "use torch's nn.BatchNorm layers as they are, or give `--batch-norm local`",
        ),
    ],
    ids=["workers", "workers and micro-batches", "micro-batches", "one by one", "subclass"],
)
def test_what_must_be_said(
    model: nn.Module, layout: Layout, micro_batches: int, problem: str, fix: str
) -> None:
    group: Any = object()  # never asked: the layout is refused before
    with pytest.raises(PacelineError) as error:
        prepare_batch_norm(model, layout, group, micro_batches=micro_batches)
    assert problem in error.value.problem
    assert fix in error.value.fix


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        (blocks(), Layout()),
        (nn.Linear(2, 2), Layout(replicas=2)),
        (nn.InstanceNorm1d(2), Layout(replicas=2)),
        (nn.Sequential(nn.BatchNorm1d(2).eval()), Layout(replicas=2)),
        (Activated(2), Layout(replicas=2, batch_norm="local")),
    ],
    ids=["not divided", "no such layer", "another layer", "frozen", "subclass"],
)
def test_where_nothing_need_be_said(model: nn.Module, layout: Layout) -> None:
    prepare_batch_norm(model, layout, None, micro_batches=1)
