"""`compile` compiles one block at a time.

Before, the whole model was one graph, which took long to compile, and models and blocks whose call
starts in torch's own files (`nn.Sequential`, recomputed blocks) were silently not compiled at all.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import paceline
from layouts.models import training_of
from paceline.comm.torch_internals import GradBucket
from paceline.parallel.blocks.compiled import compile_blocks
from paceline.specs import Faults, Layout
from ranks import new_run, run_ranks

pytestmark = pytest.mark.slow


def count_graphs(backend: str) -> list[int]:
    """Let `compile` use another backend than Inductor, which takes seconds per graph; the sizes of
    the graphs that it gets are added to the list."""
    graphs: list[int] = []
    compiler: Callable[..., Any] = torch._dynamo.lookup_backend(backend)

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return compiler(graph, inputs)

    compile_module = nn.Module.compile

    def compile_counting(module: nn.Module) -> None:
        compile_module(module, backend=counting)

    nn.Module.compile = compile_counting  # type: ignore[method-assign,assignment]
    return graphs


def trained() -> tuple[list[float], int]:
    graphs = count_graphs("eager")
    with paceline.start(training_of("gpt", steps=5, batch=14)) as trainer:
        losses = [float(trainer.step(batch).loss) for batch in trainer]
    return losses, len(graphs)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(replicas=2),
        Layout(shards=2, recompute="block"),
        pytest.param(Layout(shards=2, recompute="selective"), marks=pytest.mark.nightly),
        pytest.param(Layout(replicas=2, shards=2), marks=pytest.mark.nightly),
        pytest.param(Layout(replicas=2, micro_batch=4), marks=pytest.mark.nightly),
    ],
    ids=["replicas", "recompute", "selective", "hsdp", "micro-batches"],
)
def test_equal_blocks_share_a_graph_and_change_no_loss(layout: Layout, tmp_path: Path) -> None:
    losses = []
    for compiles in (False, True):
        where = layout.model_copy(update={"compile": compiles})
        patient = Faults(lease_seconds=60)
        run = new_run(tmp_path / str(compiles), layout.workers, where, faults=patient)
        found, graphs = run_ranks(trained, layout.workers, tmp_path, run=run)[0]
        assert bool(graphs) is compiles
        assert graphs <= (2 if layout.micro_batch else 1)  # the second is for any number of rows
        losses.append(found)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def order_of_gradients(folder: str) -> tuple[list[str], int, int, int]:
    graphs = count_graphs("aot_eager")
    order: list[str] = []

    def mark(what: str, gradient: torch.Tensor) -> None:
        order.append(what)

    class Marked(nn.Module):
        """Four blocks of 1 MiB each, DDP's smallest bucket."""

        def __init__(self) -> None:
            super().__init__()
            blocks = (nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(4))
            self.blocks = nn.ModuleList(blocks)

        def forward(self, stream: torch.Tensor) -> torch.Tensor:
            for number, block in enumerate(self.blocks):
                stream = block(stream)
                stream.register_hook(partial(mark, f"block {number}"))  # type: ignore[no-untyped-call]
            return stream

    def reduced(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        order.append("reduced")
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    dist.init_process_group(init_method=f"file://{folder}/store", rank=0, world_size=1)
    model = Marked()
    compile_blocks(model)

    def replicated() -> DistributedDataParallel:
        wrapped = DistributedDataParallel(model, bucket_cap_mb=1)
        wrapped.register_comm_hook(None, reduced)
        return wrapped

    counts = []
    for samples, wrapped in ((6, replicated()), (6, replicated()), (5, replicated())):
        for _ in range(2):  # DDP divides gradients into buckets after the first
            order.clear()
            torch.autograd.backward(wrapped(torch.ones(samples, 512)).sum())
        counts.append(len(graphs))
    dist.destroy_process_group()
    return order, counts[0], counts[1], counts[2]


def test_replicas_reduce_the_gradients_of_late_blocks_first(tmp_path: Path) -> None:
    """DDP sends the gradients of a block while those before it compute; wrapped again, as after a
    regroup, the model is not compiled again, but once for another number of samples."""
    ((order, first, again, fewer),) = run_ranks(order_of_gradients, 1, tmp_path, str(tmp_path))
    assert order.index("reduced") < order.index("block 1")
    assert (first, again) == (2, 2)  # one for the first block, whose input has no gradient
    assert fewer == 4
