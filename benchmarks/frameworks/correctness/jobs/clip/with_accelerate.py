# mypy: disable-error-code="no-untyped-call"
"""The training with Accelerate: `torchrun --nproc-per-node 3 with_accelerate.py`.

Its `gather` carries no gradients, so rows are gathered by torch's own differentiable all-gather.
"""

import torch
from accelerate import Accelerator
from torch.distributed.nn.functional import all_gather
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.given import EPOCHS, LOCAL_BATCH, chosen, record
from examples.clip.train import Clip, pairs


def main() -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    plain = Clip()
    model, optimizer, loader = accelerator.prepare(
        plain,
        torch.optim.AdamW(plain.parameters(), lr=2e-3),
        DataLoader(chosen(pairs()), LOCAL_BATCH),
    )
    for _ in range(EPOCHS):
        for pixels, names, labels in loader:
            image, name, scale = model(pixels, names)
            logits = scale * torch.cat(all_gather(image)) @ torch.cat(all_gather(name)).T
            every = accelerator.gather(labels)
            same = (every[:, None] == every).float()
            target = same / same.sum(1, keepdim=True)
            loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    record(accelerator.unwrap_model(model), EPOCHS * len(loader))


if __name__ == "__main__":
    main()
