"""The training in one process, in plain PyTorch."""

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.given import BATCH, EPOCHS, chosen, record
from examples.translation.train import PAD, Numbers, Translator, padded


def main() -> None:
    torch.manual_seed(0)
    model = Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(chosen(Numbers()), BATCH, collate_fn=padded)
    for _ in range(EPOCHS):
        for inputs, target in loader:
            logits = model(*inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    record(model, EPOCHS * len(loader))


if __name__ == "__main__":
    main()
