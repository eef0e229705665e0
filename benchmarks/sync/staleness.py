"""What a staleness bound costs in loss and gains in speed, on four workers.

Real workers and real messages on this machine; their speed is emulated: a worker's model sleeps
before it computes. All ways run in turn, round by round; medians.

Loss: every step of every worker takes another random time (2 ms and an exponential time of 8 ms on
average). After the same number of samples for all ways: the loss over the whole dataset, the
seconds it took, and how many updates by others a gradient missed (`missed`; 3 is one by each other
worker). Plain SGD, so that updates one by one differ from one update by the mean only in what they
are computed on; at a usual learning rate, and at one near the largest that training without
staleness bears, since that is what theory says staleness takes: room at the top.

Delay: the worst that a bound of s admits, simulated in one process: every gradient is exactly s
steps of all workers old, θ(t+1) = θ(t) − η∇f(θ(t−s)), at three learning rates.

Slow: in every step one of the workers, another one each time, takes four times as long as the
others (unsteady), or it is always the same (lame). Seconds for all steps, beside what they would
take if nobody waited for anybody: a worker's own steps. Every worker has the same share of every
batch, so the lame one determines when all are done in every mode; what helps there is to give it
less to do (`speeds` in the layout), which is the last row.
"""

import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from benchmarks.common.output import argument_parser
from paceline.report.drawing.chart import drawing_packages
from paceline.specs import Layout, Plan, Saving, SyncSettings
from paceline.sync.modes.stale.hook import StaleWeights
from ranks import new_run, run_ranks

WORKERS = 4
BATCH = 128
STEPS = {"loss": 100, "unsteady": 60, "lame": 30}
RATES = {"usual": 0.5, "high": 6.0}
DELAYS = (0, 1, 2, 4, 8, 16)
DELAYED_RATES = (0.5, 2.0, 6.0)
WARM_STEPS = 3
FAST_SECONDS, SLOW_SECONDS = 0.02, 0.08
SLOW_WAYS = {
    "allreduce": "allreduce",
    "gossip": "gossip",
    "s = 4": "stale:staleness=4",
    "s = any": "stale:staleness=any",
}
WAYS = {
    "loss": {bound: f"stale:staleness={bound}" for bound in ("0", "1", "2", "4", "8", "any")},
    "unsteady": SLOW_WAYS,
    "lame": SLOW_WAYS | {"allreduce, by speed": "allreduce"},
}


class Paced(nn.Module):
    """A model that sleeps before it computes: an emulated device."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 10))
        self._rank = int(os.environ.get("PACELINE_RANK", "0"))
        self._random = random.Random(self._rank)
        self._turns = random.Random(0)  # the same on all: who is slow in which step
        self._part = part

    def forward(self, inputs: torch.Tensor) -> Any:
        """Late."""
        if self.training:
            # As long as it has samples: a share by speed takes all workers as long.
            time.sleep(self._seconds() * len(inputs) * WORKERS / BATCH)
        return self.layers(inputs)

    def _seconds(self) -> float:
        if self._part == "loss":
            return 0.002 + self._random.expovariate(1 / 0.008)
        slow = self._turns.randrange(WORKERS) if self._part == "unsteady" else WORKERS - 1
        return SLOW_SECONDS if self._rank == slow else FAST_SECONDS


def training(part: str, seed: int, rate: float) -> paceline.Training:
    """Ten classes by a random network, a tenth of them wrong: it cannot be learned by heart."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(8192, 32, generator=generator)
    target = (inputs @ torch.randn(32, 10, generator=generator)).argmax(1)
    wrong = torch.rand(8192, generator=generator) < 0.1
    target[wrong] = torch.randint(10, (int(wrong.sum()),), generator=generator)
    return paceline.Training(
        model=lambda: Paced(part),
        loss=F.cross_entropy,
        data=TensorDataset(inputs, target),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=rate),
        # Down to nothing: what is left at the end is not the noise of the last few steps.
        schedule=lambda optimizer: torch.optim.lr_scheduler.LinearLR(
            optimizer, start_factor=1.0, end_factor=0.0, total_iters=STEPS[part]
        ),
        batch=BATCH,
        steps=STEPS[part],
        seed=seed,
    )


def one_worker(part: str, seed: int, rate: float) -> dict[str, Any]:
    """When a worker's steps ended, the final loss, and what its server saw."""
    made = training(part, seed, rate)
    ends = []
    with paceline.start(made) as trainer:
        for batch in trainer:
            trainer.step(batch)
            ends.append(time.monotonic())
        mode = trainer._stepper.mode
    with torch.no_grad():
        inputs, target = made.data.tensors
        loss = float(made.loss(trainer.model.eval()(inputs), target))
    arrivals, updates_by = [], 1
    if isinstance(mode, StaleWeights):
        arrivals = mode.arrivals
        # Without staleness all gradients of a step are one update.
        updates_by = WORKERS if mode.settings.staleness == 0 else 1
    missed = [number // updates_by - each.version for number, each in enumerate(arrivals)]
    return {"ends": ends, "loss": loss, "missed": missed}


def measure(part: str, way: str, seed: int, rate: float) -> dict[str, float]:
    """One run."""
    # The lame worker gets a quarter of what the others get.
    speeds = (4.0, 4.0, 4.0, 1.0) if "by speed" in way else None
    with tempfile.TemporaryDirectory() as folder:
        run = new_run(Path(folder), WORKERS)
        Plan(
            layout=Layout(replicas=WORKERS, speeds=speeds),
            saving=Saving(every_steps=0),
            sync=SyncSettings.parse(WAYS[part][way]),
        ).write(run.plan_file)
        found = run_ranks(one_worker, WORKERS, Path(folder), part, seed, rate, run=run)
    warm = max(each["ends"][WARM_STEPS - 1] for each in found)
    missed = found[0]["missed"]
    return {
        "loss": found[0]["loss"],
        "seconds": max(each["ends"][-1] for each in found) - warm,
        "missed": statistics.mean(missed) if missed else 0.0,
    }


def alone_seconds(part: str) -> float:
    """What the steps of a worker take by themselves, where each is slow as often as the others."""
    often = {"unsteady": 1 / WORKERS, "lame": 1.0}[part]
    each = often * SLOW_SECONDS + (1 - often) * FAST_SECONDS
    return each * (STEPS[part] - WARM_STEPS)


Found = dict[str, dict[str, list[dict[str, float]]]]
"""By part and way, each run."""


def delayed_loss(delay: int, rate: float, seed: int) -> float:
    """SGD whose gradients are those of weights `delay` steps old; simulated."""
    made = training("loss", seed, rate)
    torch.manual_seed(seed)
    model = Paced("loss").eval()  # does not sleep
    inputs, target = made.data.tensors
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()
    past = [weights] * (delay + 1)
    for step in range(STEPS["loss"]):
        rows = torch.arange(step * BATCH, (step + 1) * BATCH) % len(inputs)
        nn.utils.vector_to_parameters(past[0], model.parameters())
        loss = F.cross_entropy(model(inputs[rows]), target[rows])
        gradient = torch.cat(
            [each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))]
        )
        weights = weights - rate * (1 - step / STEPS["loss"]) * gradient
        past = [*past[1:], weights]
    nn.utils.vector_to_parameters(weights, model.parameters())
    with torch.no_grad():
        return float(F.cross_entropy(model(inputs), target))


def delays(repeat: int) -> list[dict[str, float]]:
    """The loss after the same samples, by delay and learning rate."""
    return [
        {
            "delay": delay,
            "rate": rate,
            "loss": statistics.median(delayed_loss(delay, rate, seed) for seed in range(repeat)),
        }
        for rate in DELAYED_RATES
        for delay in DELAYS
    ]


def middle(runs: list[dict[str, float]], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def table(found: Found, simulated: list[dict[str, float]]) -> None:
    console = Console()
    late = Table("delay", *(f"rate {rate:g}" for rate in DELAYED_RATES), title="loss, simulated")
    for delay in DELAYS:
        at_rates = [each["loss"] for each in simulated if each["delay"] == delay]
        late.add_row(str(delay), *(f"{loss:.3f}" for loss in at_rates))
    console.print(late)
    for rate in RATES:
        losses = Table(
            "s",
            "loss",
            "range",
            "seconds",
            "missed",
            title=f"{STEPS['loss'] * BATCH} samples, random speeds, {rate} learning rate",
        )
        for way, runs in found[rate].items():
            every = [run["loss"] for run in runs]
            losses.add_row(
                way,
                f"{middle(runs, 'loss'):.4f}",
                f"{min(every):.4f} – {max(every):.4f}",
                f"{middle(runs, 'seconds'):.2f}",
                f"{middle(runs, 'missed'):.1f}",
            )
        console.print(losses)
    for part in ("unsteady", "lame"):
        alone = alone_seconds(part)
        slow = Table(
            "way", "seconds", "of one's own", title=f"{part}: a worker's own steps {alone:.2f} s"
        )
        for way, runs in found[part].items():
            seconds = middle(runs, "seconds")
            slow.add_row(way, f"{seconds:.2f}", f"{seconds / alone:.2f} x")
        console.print(slow)


def draw(found: Found, simulated: list[dict[str, float]], path: Path) -> None:
    altair, _ = drawing_packages()

    def chart(part: str, key: str, title: str) -> Any:
        rows = [{"way": way, key: run[key]} for way, runs in found[part].items() for run in runs]
        base = altair.Chart(altair.Data(values=rows), title=title, width=200).encode(
            x=altair.X("way:N", sort=list(found[part]), title=None, axis=altair.Axis(labelAngle=0))
        )
        scale = altair.Scale(zero=key == "seconds")
        dots = base.mark_point(opacity=0.5).encode(y=altair.Y(f"{key}:Q", title=None, scale=scale))
        return dots + base.mark_tick(thickness=3).encode(
            y=altair.Y(f"median({key}):Q", title=None, scale=scale)
        )

    late = (
        altair.Chart(altair.Data(values=simulated), title="loss by delay (simulated)", width=200)
        .mark_line(point=True)
        .encode(
            x=altair.X("delay:O", title="steps", axis=altair.Axis(labelAngle=0)),
            y=altair.Y("loss:Q", title=None, scale=altair.Scale(type="log")),
            color=altair.Color("rate:N", title="learning rate"),
        )
    )
    altair.hconcat(
        late,
        chart("usual", "loss", "loss by s, usual rate"),
        chart("usual", "seconds", "seconds by s (emulated)"),
        chart("unsteady", "seconds", "seconds, one slow in turn (emulated)"),
    ).save(path)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    asked = [("loss", name, rate) for name, rate in RATES.items()]
    asked += [(part, part, RATES["usual"]) for part in ("unsteady", "lame")]
    every = [(part, name, rate, way) for part, name, rate in asked for way in WAYS[part]]
    found: Found = {name: {way: [] for way in WAYS[part]} for part, name, _ in asked}
    rounds = [(seed, *each) for seed in range(given.repeat) for each in every]
    for seed, part, name, rate, way in track(rounds, console=Console(stderr=True)):
        found[name][way].append(measure(part, way, seed, rate))
    simulated = delays(given.repeat)
    if given.json:
        print(json.dumps({"measured": found, "simulated": simulated}, indent=1))
    else:
        table(found, simulated)
    if given.svg:
        draw(found, simulated, given.svg)


if __name__ == "__main__":
    main()
