"""The training with Accelerate: `torchrun --nproc-per-node 3 with_accelerate.py`.

Its guide for batches of variable size counts the tokens of all workers, as this job does.
"""

import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.given import EPOCHS, LOCAL_BATCH, chosen, record
from examples.translation.train import PAD, Numbers, Translator, padded


def main() -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    plain = Translator()
    model, optimizer, loader = accelerator.prepare(
        plain,
        torch.optim.AdamW(plain.parameters(), lr=2e-3),
        DataLoader(chosen(Numbers()), LOCAL_BATCH, collate_fn=padded),
    )
    for _ in range(EPOCHS):
        for inputs, target in loader:
            logits = model(*inputs)
            tokens = accelerator.gather((target != PAD).sum()).sum()
            total = F.cross_entropy(
                logits.flatten(0, 1), target.flatten(), ignore_index=PAD, reduction="sum"
            )
            optimizer.zero_grad()
            accelerator.backward(total * accelerator.num_processes / tokens)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    record(accelerator.unwrap_model(model), EPOCHS * len(loader))


if __name__ == "__main__":
    main()
