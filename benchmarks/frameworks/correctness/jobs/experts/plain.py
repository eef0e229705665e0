"""The training in one process, in plain PyTorch."""

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.experts.data import digits
from benchmarks.frameworks.correctness.jobs.given import BATCH, EPOCHS, chosen, record
from examples.experts.train import EXPERTS, Mixture


def main() -> None:
    torch.manual_seed(0)
    model = Mixture()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(chosen(digits()), BATCH)
    for _ in range(EPOCHS):
        for pixels, labels in loader:
            logits, routes = model(pixels)
            share = F.one_hot(routes.argmax(-1), EXPERTS).float().mean(0)
            balance = EXPERTS * (share * routes.mean(0)).sum()
            loss = F.cross_entropy(logits, labels) + 0.01 * balance
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    record(model, EPOCHS * len(loader))


if __name__ == "__main__":
    main()
