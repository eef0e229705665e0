# mypy: disable-error-code="import-not-found, import-untyped"
"""The same job with Hugging Face Accelerate, as its guides have it.

On CPU it does replicas only. Shards are asked for as on GPUs, so that it says itself why not:
without `parallelism_config` it says nothing, ignores the FSDP plugin and trains replicas.
"""

import sys

import torch
from accelerate import Accelerator, ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin
from torch.utils.data import DataLoader

from benchmarks.common.gpt import BATCH, RandomText, network, next_byte_loss, optimizer, timed


def accelerator(layout: str) -> Accelerator:
    if layout == "replicas":
        return Accelerator(cpu=True)
    if layout == "shards":
        return Accelerator(
            cpu=True,
            fsdp_plugin=FullyShardedDataParallelPlugin(
                fsdp_version=2,
                auto_wrap_policy="transformer_based_wrap",
                transformer_cls_names_to_wrap=["Block"],
                cpu_ram_efficient_loading=False,
            ),
            parallelism_config=ParallelismConfig(dp_shard_size=2),
        )
    sys.exit("Accelerate's own pipelines (prepare_pippy) are for inference")


def main(output: str, layout: str) -> None:
    engine = accelerator(layout)
    torch.manual_seed(0)
    network_, data = network(), RandomText()
    model, update, loader = engine.prepare(
        network_,
        optimizer(network_.parameters()),
        DataLoader(data, batch_size=BATCH // engine.num_processes, shuffle=True),
    )
    for inputs, target in timed(loader, output):
        engine.backward(next_byte_loss(model(inputs), target))
        update.step()
        update.zero_grad()
    engine.end_training()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
