"""A small training whose steps take a set time, and in which faults happen when it is told so.

`PACELINE_CHAOS` names a folder: `job.json` says what to train, `orders.json` which fault is due and
up to which step to be quick. Every worker writes a line after each step: its step, its generation
and a hash of the weights that it holds.
"""

import hashlib
import json
import math
import os
import resource
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import TensorDataset

import paceline

CHAOS = Path(os.environ["PACELINE_CHAOS"])
BORN = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
WORKER = f"{os.getpid()}-{BORN}-{socket.gethostname()}"
SAMPLES, WIDTH, BATCH = 1000, 24, 24
SLOW_STEPS, LEAST_SLOW_SECONDS = 30, 0.1
AHEAD_SECONDS = 0.2
"""How much longer a step takes while a fault is due and not yet there."""

_true_time = time.time
_clock_ahead = 0.0


def _time() -> float:
    return _true_time() + _clock_ahead


time.time = _time


class Faults:
    """What this worker does wrong, when the orders say so."""

    def __init__(self) -> None:
        self._orders, self._read = CHAOS / "orders.json", 0
        self._due: dict[str, Any] = {}
        self._next_step = 1 << 60
        self._once = ""
        self._slow_steps, self._slow_seconds = 0, 0.0
        self._began, self._step_seconds = time.monotonic(), 0.0
        self._clock_right_again = 0.0

    def before(self, step: int, pace_seconds: float) -> None:
        """Take as long as a step does, and begin with what is due."""
        global _clock_ahead  # noqa: PLW0603 -- the process has one clock
        now = time.monotonic()
        self._step_seconds, self._began = now - self._began, now
        self._look()
        time.sleep(pace_seconds + (AHEAD_SECONDS if step > self._next_step else 0))
        if self._slow_steps:
            self._slow_steps -= 1
            time.sleep(self._slow_seconds)
        if _clock_ahead and time.monotonic() > self._clock_right_again:
            _clock_ahead = 0.0
        if self._due.get("worker") == WORKER and self._claimed(step):
            self._begin(self._due["kind"], self._due["sign"])

    def once(self, kind: str) -> bool:
        """Whether this is to go wrong now; what is computed again goes well."""
        due = self._once == kind
        self._once = "" if due else self._once
        return due

    def _look(self) -> None:
        try:
            changed = self._orders.stat().st_mtime_ns
        except FileNotFoundError:
            return
        if changed != self._read:
            self._read = changed
            orders = json.loads(self._orders.read_text())
            self._next_step, self._due = orders["next_step"], orders["due"]

    def _claimed(self, step: int) -> bool:
        """Whether this is the first to see it: what is done once is not done again in a step that
        is taken again."""
        unfinished = CHAOS / f"fired-{WORKER}.json"
        unfinished.write_text(json.dumps({"step": step}))
        try:
            os.link(unfinished, CHAOS / "fired" / f"{self._due['number']}.json")
        except FileExistsError:
            return False
        finally:
            unfinished.unlink()  # or what is written there next would be in the other, too
        return True

    def _begin(self, kind: str, sign: int) -> None:
        global _clock_ahead
        if kind in ("nan", "flip", *_IN_LOSS):
            self._once = kind
        elif kind == "clock":
            _clock_ahead, self._clock_right_again = sign * 3600.0, time.monotonic() + 1.0
        elif kind == "straggler":
            self._slow_steps = SLOW_STEPS
            self._slow_seconds = max(LEAST_SLOW_SECONDS, self._step_seconds)
        elif kind == "stuck":
            time.sleep(1e6)
        elif kind == "spin":
            while True:
                pass
        elif kind == "memory":
            _run_out_of_memory()


def _run_out_of_memory() -> None:
    _, hard = limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20), hard))
    try:
        torch.empty(1 << 30, dtype=torch.uint8)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _abort(device: torch.device) -> None:
    del device
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


def _watchdog(device: torch.device) -> None:
    from paceline_simulated.collectives_watchdog import end_process  # noqa: PLC0415 -- only there

    threading.Timer(0.01, end_process, [f"{device} has failed, as the fault wants it"]).start()


def _sick(device: torch.device) -> None:
    from paceline_simulated import core  # noqa: PLC0415 -- only there

    core.sicken(device.index)


def _order(device: torch.device) -> None:
    from paceline_simulated.collectives_communicator import launch_unmatched  # noqa: PLC0415 -- only there

    launch_unmatched(device)


_IN_LOSS = {"abort": _abort, "watchdog": _watchdog, "sick": _sick, "order": _order}
"""Faults that come in the middle of a step, between forward and backward."""


class Record:
    """This worker's lines, one for each step."""

    def __init__(self) -> None:
        (CHAOS / "steps").mkdir(exist_ok=True)
        self._file = (CHAOS / "steps" / f"{WORKER}.jsonl").open("a", buffering=1)
        self._placement = (-1, -1)

    def write(self, step: int, model: nn.Module, **more: Any) -> None:
        """A step has been taken."""
        # A worker that has trained to the end has closed its ledger.
        self._placement = max(self._placement, _generation())
        generation, part = self._placement
        whose, digest = _held(model, part)
        line = {
            "step": step,
            "generation": generation,
            "part": part,
            "at": time.monotonic(),
            "whose": whose,
            "hash": digest,
            "python_threads": threading.active_count(),
        }
        self._file.write(json.dumps(line | more) + "\n")


def _generation() -> tuple[int, int]:
    """The generation that this worker is in, and its part of the batch: the names of the ledger
    that it has open say so."""
    found = (-1, -1)
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            name = descriptor.readlink().name
        except OSError:  # that of the listing itself
            continue
        if name.startswith("start-") and name.endswith(".jsonl"):
            _, generation, _, part = name.removesuffix(".jsonl").split("-")
            found = max(found, (int(generation), int(part)))
    return found


def _held(model: nn.Module, part: int) -> tuple[str, str]:
    """Which part of the weights this worker holds, and a hash of it."""
    digest, whose = hashlib.blake2b(digest_size=8), "all"
    for parameter in model.parameters():
        tensor = parameter.detach()
        if isinstance(tensor, DTensor):
            # Not by where the mesh says that it is: in a later generation, PyTorch may hand out
            # the mesh of an earlier one that has as many members.
            shards = math.prod(
                tensor.device_mesh.shape[dim]
                for dim, placement in enumerate(tensor.placements)
                if isinstance(placement, Shard)
            )
            whose = f"{part % shards}/{shards}"
            tensor = tensor.to_local()
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return whose, digest.hexdigest()


def _flip_a_bit(optimizer: torch.optim.Optimizer) -> None:
    gradient = next(
        parameter.grad
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    )
    local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
    if local.numel():
        largest = int(local.abs().argmax())  # a bit of zero, as 8 bits often are, counts nothing
        local.view(torch.int32).flatten()[largest] ^= 1 << 21


def training() -> None:
    """Train, and write down what was reached."""
    job = json.loads((CHAOS / "job.json").read_text())
    faults, record = Faults(), Record()

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = (
            torch.optim.AdamW(parameters, lr=1e-3)
            if job["optimizer"] == "adamw"
            else torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
        )
        made.register_step_pre_hook(
            lambda own, *_: _flip_a_bit(own) if faults.once("flip") else None
        )
        return made

    schedules: list[LambdaLR] = []  # the last one knows the step, also where it is built anew

    def schedule(own: torch.optim.Optimizer) -> LambdaLR:
        # Only the last is kept: with one of shards its whole process group would stay.
        schedules[:] = [LambdaLR(own, lambda step: 1 - 0.9 * step / job["steps"])]
        return schedules[-1]

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        found = F.mse_loss(output, target)
        for kind, go_wrong in _IN_LOSS.items():
            if faults.once(kind):
                go_wrong(output.device)
        return found * float("nan") if faults.once("nan") else found

    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(SAMPLES, WIDTH, generator=generator)
    target = torch.tanh(inputs @ torch.randn(WIDTH, 4, generator=generator) / 4)
    given = paceline.Training(
        model=lambda: nn.Sequential(nn.Linear(WIDTH, 48), nn.Tanh(), nn.Linear(48, 4)),
        loss=loss,
        data=TensorDataset(inputs, target),
        optimizer=optimizer,
        schedule=schedule,
        batch=BATCH,
        clip=10.0,  # never reached; with shards, gradients that are not finite are found by it
        steps=job["steps"],
    )
    with paceline.start(given) as trainer:
        for batch in trainer:
            faults.before(schedules[-1].last_epoch + 1, job["pace_seconds"])
            record.write(trainer.step(batch).step, trainer.model)
    if not trainer.progress.stopped:
        record.write(trainer.progress.steps, trainer.model, final=True)
