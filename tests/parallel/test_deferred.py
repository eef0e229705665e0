"""Models larger than a worker's memory: built, tried and arranged, to the bit as on one process."""

import resource
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import paceline
from layouts.models import training_of
from paceline.comm.devices.cpu import Cpu
from paceline.parallel.deferred import deferral
from paceline.parallel.deferred.deferral import Deferral
from paceline.specs import Faults, Layout, Run
from ranks import new_run, run_ranks

WIDTH, WORDS = 128, 300


class Awkward(nn.Module):
    """Weights that are drawn twice, scaled, copied, tied, cloned and read while it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=3)
        self.rates = torch.linspace(0, 0.1, 3).tolist()
        self.position = nn.Parameter(torch.randn(WORDS, WIDTH) * 0.02)
        self.first, self.second = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.clones = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, batch_first=True), 2
        )
        self.turned = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embed.weight
        self.row = nn.Parameter(self.position.detach()[7].clone())  # too small to be deferred
        self.register_buffer("mask", torch.ones(WORDS, WORDS).tril(), persistent=False)
        self.plain = torch.full((WORDS, WORDS), 2.0)
        self.apply(self._draw)
        nn.init.orthogonal_(self.turned.weight)
        nn.init.trunc_normal_(self.first.weight, std=0.02)
        with torch.no_grad():
            self.second.weight.mul_(1 / self.second.weight.abs().max().item())
            self.first.weight[:5].fill_(3.0)
            self.first.weight.data[5:10] = self.position[0].repeat(5, 1)
        self.mean = float(self.position.detach().numpy().mean())

    @staticmethod
    def _draw(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        stream = self.embed(text) + self.position[: text.shape[1]] + self.mean + self.row
        stream = stream + self.second(torch.relu(self.first(stream))) + self.plain[0, 0]
        logits: torch.Tensor = self.head(self.turned(self.clones(stream)))
        return logits


@pytest.mark.parametrize("budget_bytes", [0, 2**20, 2**40])
def test_weights_that_gave_their_memory_back_are_the_same_to_the_bit(budget_bytes: int) -> None:
    torch.manual_seed(1)
    plain = Awkward()
    drawn = torch.get_rng_state()
    expected = loss_and_gradients(plain)
    torch.manual_seed(1)
    with Deferral(lambda device: budget_bytes) as mode:
        with mode.recording():
            model = Awkward()
        assert torch.equal(torch.get_rng_state(), drawn)
        assert mode.is_needed == (budget_bytes < 2**40)
        held = {each.untyped_storage() for each in model.parameters()}
        assert sum(each.nbytes() for each in held) <= budget_bytes + 2**18
        found = loss_and_gradients(model)
        mode.settle()
    assert [torch.equal(*both) for both in zip(found, expected, strict=True)] == [True] * len(found)
    assert torch.equal(model.plain, plain.plain)
    assert torch.equal(model.get_buffer("mask"), plain.get_buffer("mask"))
    weights = model.state_dict()
    assert all(torch.equal(weights[name], each) for name, each in plain.state_dict().items())


def loss_and_gradients(model: nn.Module) -> list[torch.Tensor]:
    loss = model.eval()(torch.arange(12).view(2, 6)).logsumexp(-1).mean()
    torch.autograd.backward(loss)
    return [loss.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]


LAYOUTS = {
    "shards": Layout(shards=3),
    "replicas x shards": Layout(replicas=2, shards=2),
    "tensor": Layout(tensor=2),
    "tensor x replicas": Layout(tensor=2, replicas=2),
    "pipeline": Layout(pipeline=2),
    "interleaved": Layout(pipeline=2, schedule="interleaved"),
    "tensor x shards": Layout(tensor=2, shards=2),
    "pipeline x tensor": Layout(pipeline=2, tensor=2),
    "pipeline x shards": Layout(pipeline=2, shards=2),
}
EACH_COMMIT = ("shards", "tensor x replicas", "interleaved", "tensor x shards")


def quiet_run(folder: Path, layout: Layout) -> Run:
    """A run in which a worker that a busy machine delays is not taken for lost."""
    return new_run(folder, layout.workers, layout, faults=Faults(regroup=False))


def without_room() -> None:
    """Let this process have no memory for weights, however small they are."""
    deferral._LEAST_BYTES = 1
    Cpu.memory_bytes = lambda *_: 0  # type: ignore[method-assign]


def differing_weights(model: str) -> list[str]:
    """The weights before the first step that differ from those of a plain model."""
    without_room()
    training = training_of(model, steps=2)
    with paceline.start(training) as trainer:
        found = dict(trainer._stepper.parallel_model.weights())
        torch.manual_seed(training.seed)
        expected = training.model().state_dict()
        assert found.keys() == expected.keys()
        differ = [name for name, each in expected.items() if not torch.equal(found[name], each)]
        for batch in trainer:
            trainer.step(batch)
    return differ


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in EACH_COMMIT else pytest.mark.nightly)
        for name in LAYOUTS
    ],
)
def test_it_starts_with_the_weights_of_one_process(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    run = quiet_run(tmp_path, layout)
    found = run_ranks(differing_weights, layout.workers, tmp_path, "gpt", run=run, seconds=200)
    assert found == [[]] * layout.workers


class Stack(nn.Module):
    """8 blocks of 8 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)) for _ in range(8)
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            values = block(values)
        return values


def peak_bytes(room_bytes: int) -> int:
    """The most memory of this process before its first step."""
    Cpu.memory_bytes = lambda *_: room_bytes  # type: ignore[method-assign]
    samples = torch.randn(8, 512)
    training = paceline.Training(
        model=Stack,
        loss=nn.functional.mse_loss,
        data=TensorDataset(samples, samples),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
        batch=4,
        steps=1,
    )
    with paceline.start(training) as trainer:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        for batch in trainer:
            trainer.step(batch)
    return peak


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["shards", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("tensor", "pipeline"))],
)
def test_no_worker_ever_holds_the_whole_model(name: str, tmp_path: Path) -> None:
    layout = Layout(**{name: 4})

    def most_bytes(room_bytes: int) -> int:
        folder = tmp_path / f"{room_bytes}"
        run = quiet_run(folder, layout)
        found: list[int] = run_ranks(peak_bytes, 4, folder, room_bytes, run=run, seconds=200)
        return max(found)

    # Of 64 MB, a quarter stays, with what the trial computes.
    assert most_bytes(2**40) - most_bytes(0) > 0.5 * 2**26
