# mypy: disable-error-code="import-not-found"
"""The same job with Lightning Fabric, as its guides have it.

Its FSDPStrategy refuses CPUs ("FSDP is only available on GPU"); shards are its
ModelParallelStrategy, which takes PyTorch's own `fully_shard`.
"""

import sys
from typing import Any

from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from lightning_fabric.strategies.strategy import Strategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

from benchmarks.common.gpt import BATCH, RandomText, network, next_byte_loss, optimizer, timed

WORKERS = 2


def sharded(model: Any, mesh: DeviceMesh) -> nn.Module:
    for block in model.blocks:
        fully_shard(block, mesh=mesh["data_parallel"])
    whole: nn.Module = fully_shard(model, mesh=mesh["data_parallel"])
    return whole


def strategy(layout: str) -> Strategy:
    if layout == "replicas":
        return DDPStrategy()
    if layout == "shards":
        return ModelParallelStrategy(sharded, data_parallel_size=WORKERS, tensor_parallel_size=1)
    sys.exit("Fabric has no strategy for pipelines")


def main(output: str, layout: str) -> None:
    fabric = Fabric(accelerator="cpu", devices=WORKERS, strategy=strategy(layout))
    fabric.launch()
    fabric.seed_everything(0)
    model = fabric.setup_module(network())
    update: Any = fabric.setup_optimizers(optimizer(model.parameters()))
    loader = fabric.setup_dataloaders(
        DataLoader(RandomText(), batch_size=BATCH // WORKERS, shuffle=True)
    )
    for inputs, target in timed(loader, output):
        fabric.backward(next_byte_loss(model(inputs), target))
        update.step()
        update.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
