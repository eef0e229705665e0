"""The job with DeepSpeed: `deepspeed --num_accelerators 2 with_deepspeed.py STAGE`.

STAGE is that of ZeRO: 0 shards nothing, 1 the state of the optimizer. Clipping is switched off: it
clips at a norm of 1 unless told otherwise.
"""

import sys
from typing import Any

import deepspeed
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.frameworks.jobs.gpt import BATCH, WORKERS, Text, network, next_byte_loss, optimizer
from benchmarks.frameworks.jobs.meter import Meter


def main(stage: int) -> None:
    deepspeed.init_distributed()
    plain = network()
    engine, *_ = deepspeed.initialize(
        model=plain,
        optimizer=optimizer(plain.parameters()),
        config={
            "train_micro_batch_size_per_gpu": BATCH // WORKERS,
            "gradient_clipping": 0.0,
            "zero_optimization": {"stage": stage},
        },
    )
    data = Text()
    sampler: DistributedSampler[Any] = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=BATCH // WORKERS, sampler=sampler)
    meter = Meter()
    for inputs, target in loader:
        loss = next_byte_loss(engine(inputs), target)
        engine.backward(loss)
        engine.step()
        meter.step(loss.item())
    meter.end()


if __name__ == "__main__":
    main(int(sys.argv[-1]))
