"""The training in one process, in plain PyTorch."""

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.gan.data import points
from benchmarks.frameworks.correctness.jobs.given import BATCH, EPOCHS, chosen, record
from examples.gan.train import Gan


def main() -> None:
    torch.manual_seed(0)
    model = Gan()
    generator, discriminator = model.generator, model.discriminator
    drawing = torch.optim.Adam(generator.parameters(), lr=1e-3)
    judging = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
    loader = DataLoader(chosen(points()), BATCH)
    step = 0
    for _ in range(EPOCHS):
        for noise, real in loader:
            step += 1
            fake = generator(noise).detach()
            loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()
            judging.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            judging.step()
            if step % 2 == 0:
                loss = F.softplus(-discriminator(generator(noise))).mean()
                drawing.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                drawing.step()
    record(model, step)


if __name__ == "__main__":
    main()
