"""Which outer rate and momentum suit local steps, by inner optimizer and number of replicas?

Tasks of `benchmarks.learning`, each with the inner rate that was tuned at its local batch of 16:
SGD without and with momentum, and AdamW. 1, 2, 4 and 8 replicas take local steps, each on samples
of its own, 20 rounds whatever their number, warmed up and decayed along a cosine. All settings
and seeds are rows of one batched model, so this computes the algorithm that
`tests/sync/test_local.py` compares with the mode, in one process: real training, no communication.

Shown is the held-out loss of the shared weights after training, relative to averaging (outer rate 1
without momentum) with the same seeds: mean over tasks and seeds, in percent. A setting in which any
run ends worse than twice that loss, or not finite, is marked as diverged.

`--held-out` checks the momenta that were chosen by this sweep (`diloco`'s defaults) on a task that
is not in it, a transformer, with other seeds and at the default outer rate. They hold on a number
of replicas if they are at most 1 % worse than averaging, and at most 2 points worse than the best
momentum. Task, seeds and measure were fixed before the check was run.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from benchmarks.common.output import argument_parser, progress, table
from benchmarks.learning import train

REPLICAS, LOCAL_BATCH, ROUNDS = (1, 2, 4, 8), 16, 20
MOMENTA = (0.0, 0.3, 0.5, 0.7, 0.9)
AVERAGING = (1.0, 0.0)
CHOSEN = {"sgd": (0.7, 0.7), "momentum": (0.7, 0.7), "adamw": (0.7, 0.5)}
"""The default outer rate and momentum, by inner optimizer."""
MOST_HARM, MOST_MISSED = 0.01, 0.02
"""How much worse than averaging, and than the best, a default may be and hold."""
DIVERGED = 2.0
"""Times the loss of averaging."""


@dataclass(frozen=True)
class Sweep:
    """What is compared."""

    tasks: tuple[str, ...]
    inners: tuple[str, ...]
    settings: tuple[tuple[float, float], ...]
    """Outer rates and momenta."""
    first_seed: int


CHOOSING = Sweep(
    ("teacher", "bytes"), ("sgd", "momentum", "adamw"), tuple(product((0.7, 1.0), MOMENTA)), 300
)
HELD_OUT = Sweep(
    ("attention",), ("momentum", "adamw"), (AVERAGING, *product((0.7,), MOMENTA[1:])), 400
)


@dataclass(frozen=True)
class Case:
    """One batch of runs."""

    sweep: Sweep
    task: str
    inner: str
    replicas: int
    every: int
    seeds: int


def inner_optimizer(case: Case, weights: list[Tensor]) -> torch.optim.Optimizer:
    """Return the inner optimizer; plain SGD with the rate that momentum amounts to."""
    if case.inner == "adamw":
        built = train.optimizer("adamw", train.RATES[case.task, "adamw"])
    else:
        built = train.optimizer("sgd", train.RATES[case.task, "sgd"])
    found = built(weights)
    for group in found.param_groups:
        group |= {"fused": True, "foreach": False}
        if case.inner == "sgd":
            group["lr"] /= 1 - group["momentum"]
            group["momentum"] = 0.0
    return found


class Runs:
    """All settings and seeds of a case. Tensors begin with (setting x seed, replica)."""

    def __init__(self, case: Case) -> None:
        self._case = case
        models = []
        for seed in range(case.seeds):
            torch.manual_seed(case.sweep.first_seed + seed)
            models.append(train.model(case.task))
        self._model = models[0]
        stacked, _ = stack_module_state(models)
        self._anchors = {
            name: each.detach().repeat(len(case.sweep.settings), *[1] * (each.dim() - 1))
            for name, each in stacked.items()
        }
        self._momenta = {name: torch.zeros_like(each) for name, each in self._anchors.items()}
        self._weights = {
            name: each.repeat_interleave(case.replicas, 0).requires_grad_()
            for name, each in self._anchors.items()
        }
        rows = torch.tensor(case.sweep.settings).repeat_interleave(case.seeds, 0)
        self._rate, self._momentum = rows.unbind(1)

    def losses(self) -> Tensor:
        """Train; return the held-out loss of each setting and seed."""
        case, steps = self._case, ROUNDS * self._case.every
        settings = len(case.sweep.settings)
        data = train.data(case.task, held_out=False).tensors
        optimizer = inner_optimizer(case, list(self._weights.values()))
        schedule = train.cosine(steps)(optimizer)
        generator = torch.Generator().manual_seed(case.sweep.first_seed)
        for step in range(1, steps + 1):
            drawn = (case.seeds * case.replicas, LOCAL_BATCH)
            places = torch.randint(0, len(data[0]), drawn, generator=generator)
            places = places.repeat(settings, 1)
            optimizer.zero_grad()
            self._loss(self._weights, data[0][places], data[1][places]).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            if step % case.every == 0:
                self._outer_step()
        inputs, target = (each[:2048] for each in train.data(case.task, held_out=True).tensors)
        with torch.no_grad():
            found = self._loss(self._anchors, inputs, target, in_dims=(0, None, None))
        return found.view(settings, case.seeds)

    def _loss(
        self,
        weights: dict[str, Tensor],
        inputs: Tensor,
        target: Tensor,
        in_dims: tuple[int | None, ...] = (0, 0, 0),
    ) -> Tensor:
        def one(each: dict[str, Tensor], inputs: Tensor, target: Tensor) -> Tensor:
            return train.loss(functional_call(self._model, each, (inputs,)), target)

        chunk = None if in_dims[1] == 0 else 8
        found: Tensor = vmap(one, in_dims=in_dims, chunk_size=chunk)(weights, inputs, target)
        return found

    @torch.no_grad()
    def _outer_step(self) -> None:
        replicas = self._case.replicas
        for name, anchor in self._anchors.items():
            shape = (-1, *[1] * (anchor.dim() - 1))
            rate, momentum = self._rate.view(shape), self._momentum.view(shape)
            mean = self._weights[name].unflatten(0, (-1, replicas)).mean(1)
            change = anchor - mean
            kept = self._momenta[name].mul_(momentum).add_(change)
            anchor.sub_(rate * (change + momentum * kept))
            self._weights[name].copy_(anchor.repeat_interleave(replicas, 0))


def measured(sweep: Sweep, every: int, seeds: int) -> list[dict[str, Any]]:
    """Run all cases; return a row for each, with the loss by setting and seed."""
    cases = [
        Case(sweep, task, inner, replicas, every, seeds)
        for inner, replicas, task in product(sweep.inners, REPLICAS, sweep.tasks)
    ]
    return [
        {
            "task": case.task,
            "inner": case.inner,
            "replicas": case.replicas,
            "losses": Runs(case).losses().tolist(),
        }
        for case in progress(cases, "cases")
    ]


def relative(
    sweep: Sweep, rows: Sequence[dict[str, Any]], inner: str, replicas: int
) -> list[float]:
    """Return the loss of each setting relative to averaging; infinite where a run diverged."""
    found: list[list[float]] = [[] for _ in sweep.settings]
    for row in rows:
        if (row["inner"], row["replicas"]) == (inner, replicas):
            base = row["losses"][sweep.settings.index(AVERAGING)]
            for each, losses in zip(found, row["losses"], strict=True):
                each += [loss / other for loss, other in zip(losses, base, strict=True)]
    return [
        sum(each) / len(each) if all(ratio < DIVERGED for ratio in each) else math.inf
        for each in found
    ]


def shown(sweep: Sweep, rows: Sequence[dict[str, Any]], every: int) -> None:
    """Print a table for each inner optimizer."""
    for inner in sweep.inners:
        title = f"{inner}, {every} local steps: held-out loss against averaging, %"
        made = table(title, "rate", "momentum", *(f"{each} replicas" for each in REPLICAS), texts=2)
        columns = [relative(sweep, rows, inner, replicas) for replicas in REPLICAS]
        for (rate, momentum), *ratios in zip(sweep.settings, *columns, strict=True):
            cells = [_cell(each, min(column)) for each, column in zip(ratios, columns, strict=True)]
            made.add_row(f"{rate:g}", f"{momentum:g}", *cells)
        Console().print(made)
        chosen = sweep.settings.index(CHOSEN[inner])
        held = [
            column[chosen] - 1 <= MOST_HARM and column[chosen] - min(column) <= MOST_MISSED
            for column in columns
        ]
        print(f"{inner}: the default holds on {sum(held)} of {len(held)} numbers of replicas")


def _cell(ratio: float, best: float) -> str:
    if not math.isfinite(ratio):
        return "diverged"
    return f"{100 * (ratio - 1):+.1f}{' *' if ratio == best else ''}"


def main() -> None:
    """Run all cases and print the tables."""
    parser = argument_parser(__doc__)
    parser.add_argument("--every", type=int, default=10, help="local steps (default: 10)")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--held-out", action="store_true", help="check the defaults elsewhere")
    parser.add_argument("--json", type=argparse.FileType("w"), help="write all losses to this file")
    options = parser.parse_args()
    sweep = HELD_OUT if options.held_out else CHOOSING
    rows = measured(sweep, options.every, options.seeds)
    shown(sweep, rows, options.every)
    if options.json:
        json.dump(rows, options.json)


if __name__ == "__main__":
    main()
