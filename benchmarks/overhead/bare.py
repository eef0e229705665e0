# mypy: disable-error-code="no-untyped-call"
"""The same job in bare PyTorch, as its tutorials have it: DDP, FSDP2 or a 1F1B pipeline."""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.common.gpt import (
    BATCH,
    CONTEXT,
    MICRO_BATCH,
    WIDTH,
    RandomText,
    network,
    next_byte_loss,
    optimizer,
    timed,
)

Gradients = Callable[[torch.Tensor, torch.Tensor], None]
"""Leaves the gradients of a batch on the parameters."""


def distributed(layout: str) -> nn.Module:
    model: Any = network()
    if layout == "replicas":
        return DistributedDataParallel(model)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    sharded: nn.Module = model
    return sharded


def whole(model: nn.Module) -> Gradients:
    def gradients(inputs: torch.Tensor, target: torch.Tensor) -> None:
        next_byte_loss(model(inputs), target).backward()

    return gradients


def half(rank: int) -> nn.Module:
    """The model up to its middle block, or from there on."""
    model: Any = network()
    middle = len(model.blocks) // 2
    if rank:
        return nn.Sequential(*model.blocks[middle:], model.norm, model.head)
    model.blocks = model.blocks[:middle]
    model.norm = model.head = nn.Identity()
    first: nn.Module = model
    return first


def pipelined(stage: nn.Module, rank: int) -> Gradients:
    text = torch.zeros(MICRO_BATCH, CONTEXT, dtype=torch.long)
    # Examples that require gradients: stages send some back only for these.
    stream = torch.zeros(MICRO_BATCH, CONTEXT, WIDTH, requires_grad=True)
    logits = torch.zeros(MICRO_BATCH, CONTEXT, 256, requires_grad=True)
    schedule = Schedule1F1B(
        PipelineStage(
            stage,
            rank,
            num_stages=2,
            device=torch.device("cpu"),
            input_args=stream if rank else text,
            output_args=logits if rank else stream,
        ),
        n_microbatches=BATCH // MICRO_BATCH,
        loss_fn=next_byte_loss,
        scale_grads=True,  # by the micro-batches: the loss is a mean over one, not over the batch
    )

    def gradients(inputs: torch.Tensor, target: torch.Tensor) -> None:
        if rank:
            schedule.step(target=target, return_outputs=False)
        else:
            schedule.step(inputs, return_outputs=False)

    return gradients


def main(output: str, layout: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    # The stages of a pipeline work on one batch; replicas and shards each on their part of it.
    parts, part = (1, 0) if layout == "pipeline" else (dist.get_world_size(), rank)
    model = half(rank) if layout == "pipeline" else distributed(layout)
    gradients = pipelined(model, rank) if layout == "pipeline" else whole(model)
    update = optimizer(model.parameters())
    data = RandomText()
    sampler: DistributedSampler[Any] = DistributedSampler(data, parts, part, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=BATCH // parts, sampler=sampler)
    for inputs, target in timed(loader, output):
        gradients(inputs, target)
        update.step()
        update.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
