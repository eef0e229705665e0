"""The training in one process, in plain PyTorch."""

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.given import BATCH, EPOCHS, chosen, record
from examples.clip.train import Clip, pairs


def main() -> None:
    torch.manual_seed(0)
    model = Clip()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(chosen(pairs()), BATCH)
    for _ in range(EPOCHS):
        for pixels, names, labels in loader:
            image, name, scale = model(pixels, names)
            logits = scale * image @ name.T
            same = (labels[:, None] == labels).float()
            target = same / same.sum(1, keepdim=True)
            loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    record(model, EPOCHS * len(loader))


if __name__ == "__main__":
    main()
