"""Batch normalization with each worker's own statistics, and what must be said of either kind."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from paceline.parallel.batch_norm import prepare_batch_norm
from paceline.specs import Layout, PacelineError
from parallel.normalized import CHANNELS, blocks, rows


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
    assert "`--batch-norm synchronized`" in error.value.fix


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
            " differs from one device's) or `--batch-norm synchronized` (as on one device: two",
        ),
        (
            nn.SyncBatchNorm(2),
            Layout(shards=3),
            4,
            "in SyncBatchNorm, but a batch is divided over 3 workers and 4 micro-batches:",
            "or, without --micro-batch and pipeline, `--batch-norm synchronized`",
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
            Layout(micro_batch=4, batch_norm="synchronized"),
            2,
            "divided into 2 micro-batches",
            "train without --micro-batch and pipeline, or give `--batch-norm local`",
        ),
        (
            nn.Sequential(Activated(2), nn.BatchNorm1d(2)),
            Layout(replicas=2, batch_norm="synchronized"),
            1,
            "0 cannot share statistics, because of a custom forward",
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
