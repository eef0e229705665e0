"""The training in one process, in plain PyTorch."""

import torch
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from benchmarks.frameworks.correctness.jobs.given import BATCH, EPOCHS, record
from benchmarks.frameworks.correctness.jobs.resnet.data import held_out, shapes
from examples.resnet.train import resnet


def main() -> None:
    torch.manual_seed(0)
    model = resnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # type: ignore[no-untyped-call]
    loader, others = DataLoader(shapes(), BATCH), DataLoader(held_out(), BATCH)
    for _ in range(EPOCHS):
        for image, target in loader:
            loss = F.cross_entropy(model(image), target)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            average.update_parameters(model)
        average.eval()
        right = samples = 0.0
        with torch.no_grad():
            for image, target in others:
                right += (average(image).argmax(1) == target).sum().item()
                samples += len(target)
    record(average.module, EPOCHS * len(loader), accuracy=right / samples)


if __name__ == "__main__":
    main()
