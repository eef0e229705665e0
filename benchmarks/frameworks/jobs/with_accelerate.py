"""The job with Hugging Face Accelerate: `torchrun --nproc-per-node 2 with_accelerate.py`.

Its own `accelerate launch --cpu --num_processes 2` starts one process and says nothing of it.
"""

from accelerate import Accelerator
from torch.utils.data import DataLoader

from benchmarks.frameworks.jobs.gpt import BATCH, WORKERS, Text, network, next_byte_loss, optimizer
from benchmarks.frameworks.jobs.meter import Meter


def main() -> None:
    accelerator = Accelerator(cpu=True)
    plain = network()
    model, update, loader = accelerator.prepare(
        plain,
        optimizer(plain.parameters()),
        DataLoader(Text(), batch_size=BATCH // WORKERS),
    )
    meter = Meter()
    for inputs, target in loader:
        loss = next_byte_loss(model(inputs), target)
        accelerator.backward(loss)
        update.step()
        update.zero_grad()
        meter.step(loss.item())
    meter.end()
    accelerator.end_training()


if __name__ == "__main__":
    main()
