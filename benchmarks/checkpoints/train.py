"""A decoder whose weights and optimizer state make 200 MB.

`training` computes on the CPU, which hashing and writing take time from; `paced` stands for a
device of its own that computes meanwhile, and sleeps.
"""

import dataclasses
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline

WIDTH, BLOCKS, WORDS, LENGTH, BATCH = 512, 5, 1024, 64, 16
PACED_STEP_SECONDS = 0.2


class Decoder(nn.Module):
    """16.8 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, BLOCKS)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Logits of the next word."""
        logits: torch.Tensor = self.head(self.blocks(self.embed(text)))
        return logits


class Paced(nn.Module):
    """As many parameters, on which nothing is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(16_800, 1000))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Take as long as a step on a device of its own would."""
        time.sleep(PACED_STEP_SECONDS)
        return self.weight[0, :1].expand(len(text), 1)


class Touching(torch.optim.Optimizer):
    """Keeps two tensors for each parameter, as Adam does, and changes one number of each."""

    def __init__(self, parameters: "list[nn.Parameter]") -> None:
        super().__init__(parameters, {})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {
                    key: torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")
                }

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Change a little, so that every file has to be written again."""
        del closure
        with torch.no_grad():
            for parameter, state in self.state.items():
                for tensor in (parameter, *state.values()):
                    tensor[:: len(tensor) // 8, 0] += 1


def training() -> paceline.Training:
    """Words at random: only time and bytes matter here."""
    text = torch.randint(WORDS, (512, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    return paceline.Training(
        model=Decoder,
        loss=lambda logits, target: F.cross_entropy(logits.flatten(0, 1), target.flatten()),
        data=TensorDataset(text[:, :-1], text[:, 1:]),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
        batch=BATCH,
        steps=40,
    )


def paced() -> paceline.Training:
    """The same bytes, and steps of one length."""
    return dataclasses.replace(
        training(),
        model=Paced,
        loss=lambda output, target: output.mean(),
        optimizer=lambda parameters: Touching(list(parameters)),
        steps=60,
    )
