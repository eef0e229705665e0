# mypy: disable-error-code="no-untyped-call"
"""The training with Accelerate: `torchrun --nproc-per-node 3 with_accelerate.py`."""

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from torch.distributed.nn.functional import all_gather
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.experts.data import digits
from benchmarks.frameworks.correctness.jobs.given import EPOCHS, LOCAL_BATCH, chosen, record
from examples.experts.train import EXPERTS, Mixture


def main() -> None:
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(cpu=True, kwargs_handlers=[unused])
    torch.manual_seed(0)
    plain = Mixture()
    model, optimizer, loader = accelerator.prepare(
        plain,
        torch.optim.AdamW(plain.parameters(), lr=2e-3),
        DataLoader(chosen(digits()), LOCAL_BATCH),
    )
    for _ in range(EPOCHS):
        for pixels, labels in loader:
            logits, routes = model(pixels)
            every = torch.cat(all_gather(routes))
            share = F.one_hot(every.argmax(-1), EXPERTS).float().mean(0)
            balance = EXPERTS * (share * every.mean(0)).sum()
            loss = F.cross_entropy(logits, labels) + 0.01 * balance
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    record(accelerator.unwrap_model(model), EPOCHS * len(loader))


if __name__ == "__main__":
    main()
