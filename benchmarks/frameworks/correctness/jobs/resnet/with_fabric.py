"""The training with Fabric: `python with_fabric.py`, which starts the other workers itself."""

from typing import Any

import torch
from lightning.fabric import Fabric
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.given import EPOCHS, LOCAL_BATCH, WORKERS, record
from benchmarks.frameworks.correctness.jobs.resnet.data import held_out, shapes
from examples.resnet.train import resnet


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=WORKERS, strategy="ddp")
    fabric.launch()
    torch.manual_seed(0)
    plain = resnet()
    model, optimizer = fabric.setup(
        plain, torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    )
    loader: Any = fabric.setup_dataloaders(DataLoader(shapes(), LOCAL_BATCH))
    others: Any = fabric.setup_dataloaders(DataLoader(held_out(), LOCAL_BATCH))
    average = AveragedModel(plain, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # type: ignore[no-untyped-call]
    for _ in range(EPOCHS):
        for image, target in loader:
            loss = F.cross_entropy(model(image), target)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            average.update_parameters(plain)
        average.eval()
        right = samples = 0.0
        with torch.no_grad():
            for image, target in others:
                right += (average(image).argmax(1) == target).sum().item()
                samples += len(target)
        right, samples = fabric.all_reduce((right, samples), reduce_op="sum")
    record(average.module, EPOCHS * len(loader), accuracy=float(right / samples))


if __name__ == "__main__":
    main()
