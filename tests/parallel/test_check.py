"""The check finds in one process what would differ or fail on several workers."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

import paceline
from paceline import PacelineError, Phase, Training
from paceline.parallel.check.check import check
from paceline.specs import Layout
from paceline.specs.finding import Finding
from train.trainings import CLASSES, FEATURES, classification

TOKENS = 6


def checked(training: Training, workers: int = 2, **options: Any) -> dict[str, Finding]:
    layout = Layout(replicas=workers)
    return {each.what: each for each in check(training, layout, torch.device("cpu"), **options)}


def problems(training: Training) -> dict[str, Finding]:
    return {what: each for what, each in checked(training).items() if each.state == "bad"}


def test_a_training_that_divides_has_only_ticks() -> None:
    found = checked(classification())
    assert {each.state for each in found.values()} == {"ok"}
    assert "2 + 2 and as 3 + 1" in found["loss"].text
    assert {"data", "batch", "model", "loss", "gradient", "buffers", "unused"} <= found.keys()


def contrastive(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Each sample against all others of its batch, as in SimCLR and CLIP."""
    rows = F.normalize(output)
    return F.cross_entropy(rows @ rows.T / 0.1, torch.arange(len(rows)))


class Centered(nn.Linear):
    """Subtracts the mean over the batch."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output = super().forward(inputs)
        return output - output.mean(0)


class GradientOfBatch(nn.Linear):
    """Has the right output, but gradients that depend on the other samples."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output = super().forward(inputs)
        mean = output.mean(0)
        return output + mean - mean.detach()


def ragged_tokens(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=-1)


def language(**changes: Any) -> Training:
    """Samples with 1 to 6 tokens that count."""
    target = torch.arange(64 * TOKENS).view(64, TOKENS) % CLASSES
    for number, row in enumerate(target):
        row[number % TOKENS + 1 :] = -1
    inputs = torch.randn(64, TOKENS, FEATURES)
    return classification(
        data=TensorDataset(inputs, target),
        model=lambda: nn.Linear(FEATURES, CLASSES),
        loss=ragged_tokens,
        **changes,
    )


@pytest.mark.parametrize(
    ("training", "what", "says", "fix"),
    [
        (lambda: classification(loss=contrastive), "loss", "depends on the others", "gather"),
        (
            lambda: classification(model=lambda: Centered(FEATURES, CLASSES)),
            "loss",
            "together, but the mean over their parts (2 + 2) is",
            "",
        ),
        (
            lambda: classification(
                loss=lambda output, target: F.cross_entropy(output, target, reduction="sum")
            ),
            "loss",
            "a sum over the samples",
            'reduction="mean"',
        ),
        (language, "loss", "not a mean over samples", "weight="),
        (
            lambda: language(weight=lambda target: torch.tensor(len(target))),
            "loss",
            "not a mean over what weight= counts",
            "weight=",
        ),
        (
            lambda: classification(model=lambda: GradientOfBatch(FEATURES, CLASSES)),
            "gradient",
            "its gradient is not",
            "gather",
        ),
    ],
)
def test_a_loss_that_is_another_one_when_divided(
    training: Any, what: str, says: str, fix: str
) -> None:
    found = problems(training())
    assert found.keys() == {what}
    assert says in found[what].text
    assert fix in found[what].fix


def test_weights_settle_a_mean_over_tokens() -> None:
    assert problems(language(weight=lambda target: (target != -1).sum())) == {}


def test_a_loss_over_gathered_rows_is_not_compared() -> None:
    def gathered(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return contrastive(paceline.gather(output), paceline.gather(target))

    loss = checked(classification(loss=gathered))["loss"]
    assert (loss.state, "paceline.gather" in loss.text) == ("note", True)


class Running(nn.Module):
    """Normalizes by a mean of its own that forward updates."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("calls", torch.zeros(()))
        self.mean: torch.Tensor
        self.calls: torch.Tensor

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.mean.lerp_(inputs.mean(0), 0.1)
        return self.layer(inputs - self.mean.detach() * 0)  # type: ignore[no-any-return]


class Counting(nn.Linear):
    def __init__(self) -> None:
        super().__init__(FEATURES, CLASSES)
        self.register_buffer("calls", torch.zeros(()))
        self.calls: torch.Tensor

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(inputs)


def test_buffers_that_forward_changes() -> None:
    found = problems(classification(model=Running))
    assert found.keys() == {"buffers"}
    assert "forward changes mean by the samples" in found["buffers"].text
    counting = checked(classification(model=Counting))["buffers"]
    assert (counting.state, "calls, on every worker alike" in counting.text) == ("ok", True)
    settled = checked(classification(model=Running, buffers="average"))["buffers"]
    assert (settled.state, "settled by Training(buffers=…)" in settled.text) == ("ok", True)


class Remembering(nn.Linear):
    """Adds its last output, as a recurrent network that keeps its hidden state."""

    def __init__(self) -> None:
        super().__init__(FEATURES, CLASSES)
        self.last: torch.Tensor | float = 0.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output = super().forward(inputs) + self.last
        self.last = output.detach().mean(0)
        return output


def test_a_state_between_steps() -> None:
    found = problems(classification(model=Remembering))
    assert "keeps a state between steps" in found["state"].text
    assert "register_buffer" in found["state"].fix


def test_dropout_is_not_called_different() -> None:
    layers = (nn.Linear(FEATURES, 32), nn.Dropout(), nn.Linear(32, CLASSES))
    found = checked(classification(model=lambda: nn.Sequential(*layers)))
    assert {each.state for each in found.values()} == {"ok"}
    assert "dropout, which was off here" in found["random"].text


class Noisy(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            inputs = F.dropout(inputs, 0.5)
        return super().forward(inputs)


class Diffusing(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs + torch.randn_like(inputs))


def test_random_numbers_in_forward() -> None:
    found = checked(classification(model=lambda: Noisy(FEATURES, CLASSES)))
    assert (found["random"].state, found["loss"].state) == ("note", "ok")
    assert "--sync canonical" in found["random"].fix
    found = checked(classification(model=lambda: Diffusing(FEATURES, CLASSES)))
    assert (found["random"].state, found["loss"].state) == ("note", "note")


def test_batch_norm_is_explained() -> None:
    layers = (nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES))
    found = checked(classification(model=lambda: nn.Sequential(*layers)))
    assert found["loss"].state == found["buffers"].state == "ok"
    assert (found["batch norm"].state, "synchronized" in found["batch norm"].fix) == ("note", True)


class Idle(nn.Linear):
    def __init__(self) -> None:
        super().__init__(FEATURES, CLASSES)
        self.idle = nn.Linear(2, 2)


def test_unused_parameters_are_named() -> None:
    found = checked(classification(model=Idle))["unused"]
    assert (found.state, "idle.weight, idle.bias" in found.text) == ("note", True)


def phase_loss(model: nn.Module, inputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(inputs), target)


def contrastive_phase(model: nn.Module, inputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return contrastive(model(inputs), target)


def test_each_phase_is_compared() -> None:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    phases = {
        "first": Phase(loss=phase_loss, optimizer=optimizer, parameters="weight"),
        "second": Phase(loss=contrastive_phase, optimizer=optimizer),
    }
    training = Training(
        model=lambda: nn.Linear(FEATURES, CLASSES),
        phases=phases,
        data=classification().data,
        batch=8,
        steps=1,
    )
    findings = list(check(training, Layout(replicas=2), torch.device("cpu")))
    (bad,) = (each for each in findings if each.state == "bad")
    assert bad.text.startswith("second: the loss of a sample depends on the others")
    assert {each.what for each in findings if each.text.startswith("first: ")} >= {"loss", "unused"}


class Ragged(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> Any:
        return torch.zeros(number % 3 + 1), torch.tensor(0)


@pytest.mark.parametrize(
    ("training", "workers", "says"),
    [
        (lambda: classification(batch=2), 3, "the global batch is 2, but there are 3 workers"),
        (lambda: classification(data=Ragged(), shuffle=False), 2, "cannot be stacked"),
        (lambda: classification(model=lambda: nn.Linear(3, 2)), 2, "the model's forward failed"),
        (lambda: classification(loss=F.nll_loss, model=nn.Identity), 2, "trainable parameter"),
        (lambda: classification(loss=nn.CTCLoss()), 2, "the loss failed"),
        (lambda: classification(model=lambda: nn.Linear(2, "x")), 2, "building the model failed"),  # type: ignore[arg-type]
    ],
)
def test_what_fails_is_one_sentence(training: Any, workers: int, says: str) -> None:
    with pytest.raises(PacelineError, match=says):
        checked(training(), workers)


def test_batches_that_the_loop_makes_are_not_compared() -> None:
    (found,) = checked(classification(data=None)).values()
    assert (found.state, "nothing to compare" in found.text) == ("note", True)


def test_a_batch_of_one_sample_is_not_divided() -> None:
    assert "one sample" in checked(classification(batch=1), workers=1)["loss"].text


def test_a_loss_that_is_not_finite() -> None:
    found = problems(classification(loss=lambda output, target: output.mean() / 0))
    assert "a loss of" in found["model"].text


def test_a_model_larger_than_memory_is_checked_without_values() -> None:
    found = checked(classification(model=Idle), most_bytes=10)
    assert "checked without values" in found["model"].text
    assert "idle.weight" in found["unused"].text
    assert found["loss"].state == "note"
