"""The training with Accelerate: `torchrun --nproc-per-node 3 with_accelerate.py`."""

import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.gan.data import points
from benchmarks.frameworks.correctness.jobs.given import EPOCHS, LOCAL_BATCH, chosen, record
from examples.gan.train import Gan


def main() -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    plain = Gan()
    generator, discriminator, drawing, judging, loader = accelerator.prepare(
        plain.generator,
        plain.discriminator,
        torch.optim.Adam(plain.generator.parameters(), lr=1e-3),
        torch.optim.Adam(plain.discriminator.parameters(), lr=1e-3),
        DataLoader(chosen(points()), LOCAL_BATCH),
    )
    step = 0
    for _ in range(EPOCHS):
        for noise, real in loader:
            step += 1
            fake = generator(noise).detach()
            loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()
            judging.zero_grad()
            accelerator.backward(loss)
            judging.step()
            if step % 2 == 0:
                loss = F.softplus(-discriminator(generator(noise))).mean()
                drawing.zero_grad()
                accelerator.backward(loss)
                drawing.step()
    record(plain, step)


if __name__ == "__main__":
    main()
