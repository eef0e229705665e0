"""The training with Accelerate: `torchrun --nproc-per-node 3 with_accelerate.py`."""

import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.given import EPOCHS, LOCAL_BATCH, record
from benchmarks.frameworks.correctness.jobs.resnet.data import held_out, shapes
from examples.resnet.train import resnet


def main() -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    plain = resnet()
    model, optimizer, loader, others = accelerator.prepare(
        plain,
        torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9),
        DataLoader(shapes(), LOCAL_BATCH),
        DataLoader(held_out(), LOCAL_BATCH),
    )
    average = AveragedModel(plain, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # type: ignore[no-untyped-call]
    for _ in range(EPOCHS):
        for image, target in loader:
            loss = F.cross_entropy(model(image), target)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            average.update_parameters(plain)
        average.eval()
        right = samples = 0.0
        with torch.no_grad():
            for image, target in others:
                found = accelerator.gather_for_metrics(average(image).argmax(1) == target)
                right += found.sum().item()
                samples += len(found)
    record(average.module, EPOCHS * len(loader), accuracy=right / samples)


if __name__ == "__main__":
    main()
