"""One rank's part in each candidate: bare PyTorch loops, and Paceline's trainer."""

import importlib
from collections.abc import Callable
from datetime import timedelta
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

from benchmarks.sync.time_to_loss.candidates import USUAL_BUCKET_MEGABYTES, Trial
from benchmarks.sync.time_to_loss.task import CLIP, MOST_STEPS, Task
from paceline.comm.groups import Groups
from paceline.data.batches import Batches
from paceline.data.loader import load
from paceline.specs import Layout, SyncSettings
from paceline.sync.modes.auto.hook import AutoHook
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.trainer import Trainer
from paceline.user.parameters import Parameters
from paceline.user.training import Training

if TYPE_CHECKING:  # torch.distributed defines TCPStore conditionally, type checkers do not see it
    from torch._C._distributed_c10d import TCPStore
else:
    from torch.distributed import TCPStore

Weights = dict[str, torch.Tensor]


class Learner(Protocol):
    """What is timed."""

    def step(self) -> None:
        """Take one step."""

    def common(self) -> Weights:
        """A copy of what the ranks have in common; all of them call this together."""

    def drain(self) -> None:
        """Wait until nothing is on its way."""

    def sync(self) -> str:
        """How Paceline's workers agree at present, if it is they."""

    def close(self) -> None:
        """Let go of what is left."""


def training_of(task: Task, trial: Trial, seed: int) -> Training:
    """The same for all, also the order of the samples and the first weights."""
    return Training(
        model=task.model,
        loss=task.loss,
        data=task.data,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=trial.rate * task.size.rate),
        batch=round(trial.part * task.size.batch),
        steps=MOST_STEPS,
        clip=CLIP,
        seed=seed,
    )


class Ours:
    """Paceline's trainer."""

    def __init__(self, task: Task, trial: Trial, seed: int, groups: Groups) -> None:
        sync = SyncSettings.parse(trial.sync)
        layout = Layout(replicas=groups.placement.workers)
        telemetry = Telemetry(groups, None, waits=not sync.replicas_differ)
        training = training_of(task, trial, seed)
        self._trainer = Trainer(training, layout, groups, telemetry, None, sync)
        self._batches = iter(self._trainer)

    def step(self) -> None:
        """Take one step."""
        self._trainer.step(next(self._batches))

    def common(self) -> Weights:
        """A copy of what the replicas have in common."""
        mode = self._trainer._stepper.mode
        tensors = mode.consensus() or [held.local for held in mode.context.parameters]
        names = (held.name for held in mode.context.parameters)
        return {name: each.detach().clone() for name, each in zip(names, tensors, strict=True)}

    def drain(self) -> None:
        """Wait until nothing is on its way."""
        self._trainer._telemetry.report_all()
        self._trainer._stepper.mode.drain()

    def sync(self) -> str:
        """How workers agree at present."""
        mode = self._trainer._stepper.mode
        return (mode.sync if isinstance(mode, AutoHook) else mode.settings).short()

    def close(self) -> None:
        """Let go of the process groups."""
        self._batches.close()  # type: ignore[attr-defined]
        self._trainer.close()


class Solo:
    """One rank alone, in plain PyTorch; the other loops change where they exchange."""

    def __init__(self, task: Task, trial: Trial, seed: int, groups: Groups, ranks: int = 1) -> None:
        training = training_of(task, trial, seed)
        torch.manual_seed(seed)
        self._model = training.model()
        self._module = self._model
        self._loss = training.loss
        self._optimizer = training.optimizer(Parameters(self._model.named_parameters()))
        order = training.sample_order()
        rank = groups.placement.rank if ranks > 1 else 0
        batches = Batches(
            order, training.first_batch, MOST_STEPS, workers=ranks, rank=rank, seed=seed
        )
        self._batches = load(training.data, batches, groups.device, training.form, processes=0)

    def step(self) -> None:
        """Take one step."""
        batch = next(self._batches)
        torch.autograd.backward(self._loss(self._module(batch.inputs), batch.target))
        nn.utils.clip_grad_norm_(self._model.parameters(), CLIP)
        self._optimizer.step()
        self._exchange()
        self._optimizer.zero_grad()

    def _exchange(self) -> None:
        """What comes after the update of the weights."""

    def common(self) -> Weights:
        """A copy of the weights."""
        return {name: each.detach().clone() for name, each in self._model.named_parameters()}

    def drain(self) -> None:
        """There is nothing to wait for."""

    def sync(self) -> str:
        """It is not Paceline's."""
        return ""

    def close(self) -> None:
        """Let go of the loader."""
        self._batches.close()  # type: ignore[attr-defined]


class Replicated(Solo):
    """DistributedDataParallel, if asked for with its fp16 hook."""

    def __init__(self, task: Task, trial: Trial, seed: int, groups: Groups) -> None:
        super().__init__(task, trial, seed, groups, ranks=groups.placement.workers)
        usual = trial.bucket_megabytes == USUAL_BUCKET_MEGABYTES
        module = DistributedDataParallel(
            self._model, bucket_cap_mb=None if usual else trial.bucket_megabytes
        )
        if trial.kind == "fp16":
            module.register_comm_hook(None, fp16_compress_hook)
        self._module = module

    def close(self) -> None:
        """Let go of the process group."""
        super().close()
        self._module = self._model


class Averaged(Solo):
    """PyTorch's periodic averager: local SGD."""

    def __init__(self, task: Task, trial: Trial, seed: int, groups: Groups) -> None:
        super().__init__(task, trial, seed, groups, ranks=groups.placement.workers)
        self._every, self._steps = trial.every, 0
        self._averager = PeriodicModelAverager(trial.every, warmup_steps=trial.every - 1)
        self._agreed = super().common()

    def _exchange(self) -> None:
        self._averager.average_parameters(self._model.parameters())
        self._steps += 1
        if self._steps % self._every == 0:
            self._agreed = super().common()

    def common(self) -> Weights:
        """The last mean."""
        return self._agreed


class TorchftDiLoCo(Solo):
    """torchft's DiLoCo, with its lighthouse on rank 0."""

    def __init__(self, task: Task, trial: Trial, seed: int, groups: Groups) -> None:
        # A peer that is there or not, which type checkers need not know.
        torchft = importlib.import_module("torchft")
        lighthouse = importlib.import_module("torchft._torchft").LighthouseServer
        diloco = importlib.import_module("torchft.local_sgd").DiLoCo
        super().__init__(task, trial, seed, groups, ranks=groups.placement.workers)
        placement, interface = groups.placement, groups.interface
        assert interface is not None
        self._lighthouse: Any = None
        address_and_port = torch.zeros(2, dtype=torch.int64)
        if placement.rank == 0:
            self._lighthouse = lighthouse(
                bind=f"{interface.address}:0", min_replicas=placement.workers, join_timeout_ms=1000
            )
            port = int(self._lighthouse.address().rpartition(":")[2])
            address_and_port = torch.tensor([int(IPv4Address(interface.address)), port])
        dist.broadcast(address_and_port, src=0)
        address, port = address_and_port.tolist()
        self._store = TCPStore(interface.address, 0, is_master=True, wait_for_workers=False)
        self._manager = torchft.Manager(
            pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=60)),
            min_replica_size=placement.workers,
            load_state_dict=None,
            state_dict=None,
            init_sync=False,
            use_async_quorum=False,
            replica_id=f"rank{placement.rank}",
            rank=0,
            world_size=1,
            store_addr=interface.address,
            store_port=self._store.port,
            hostname=interface.address,
            lighthouse_addr=f"http://{IPv4Address(address)}:{port}",
        )
        outer = torch.optim.SGD(self._model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        self._diloco = diloco(
            self._manager,
            [self._model],
            self._optimizer,
            outer,
            sync_every=trial.every,
            pin_memory=False,
            fragment_sync_delay=trial.overlap,
        )
        self._diloco.__enter__()

    def common(self) -> Weights:
        """Where the replicas last agreed."""
        (fragment,) = self._diloco._fragments
        return {name: each.clone() for name, each in fragment.original_parameters.items()}

    def close(self) -> None:
        """End its server and its threads."""
        self._diloco.__exit__(None, None, None)
        self._manager.shutdown(wait=False)
        if self._lighthouse is not None:
            self._lighthouse.shutdown()
        super().close()


LEARNERS: dict[str, Callable[[Task, Trial, int, Groups], Learner]] = {
    "solo": Solo,
    "ddp": Replicated,
    "fp16": Replicated,
    "local_sgd": Averaged,
    "torchft": TorchftDiLoCo,
    "paceline": Ours,
}
