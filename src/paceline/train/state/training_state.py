"""The state that a training needs to continue: weights, optimizers, schedules, loss scales.

Tensors are saved as pieces of whole tensors, so that another layout can restore them; the rest is
JSON. Random numbers and the sample order are functions of the step and are not saved. If replicas
differ, each saves its own tensors under its number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from paceline.checkpoints.manifest import Contents, Scalar
from paceline.checkpoints.saved_state import SavedState
from paceline.checkpoints.tensor_extent import Extent, Piece
from paceline.checkpoints.tensor_loading import fill
from paceline.comm.dtensor import is_sharded, local_tensor
from paceline.comm.torch_internals import foreach_add_, foreach_copy_
from paceline.data.streams import BEGINNING, Cursor
from paceline.parallel.parallel_model import ParallelModel, StateTensor
from paceline.specs import PacelineError
from paceline.sync.hook import Hook
from paceline.train.state.kept_objects import KeptObjects
from paceline.train.state.optimizer_room import keys_by_parameter, room_for
from paceline.train.state.plain_values import is_scalar, plain
from paceline.train.state.scalars import scalars_later
from paceline.train.state.state_lists import flattened, with_lists
from paceline.train.state.tuned_batch import load_schedule
from paceline.train.state.updates import Update
from paceline.train.state.weight_average import WeightAverage


@dataclass
class TrainingState:
    """One worker's part of the training state."""

    parallel_model: ParallelModel
    updates: Sequence[Update]
    """The single update of a step, or that of each phase, after those that it wraps."""
    mode: Hook
    cursor: Cursor | None = None
    """The place in the stream, if the data is one."""
    average: WeightAverage | None = None
    kept: KeptObjects = field(default_factory=KeptObjects)
    is_main: bool = True
    """Whether this is worker 0, which writes what is equal on all workers."""

    @cached_property
    def _stored(self) -> list[StateTensor]:
        """Tensors that this worker holds; listed once, because training waits for it."""
        return list(self.parallel_model.stored())

    def sections(self) -> dict[str, list[Piece]]:
        """Return the pieces that this worker writes, in sections that change together."""
        names = ("frozen", "model", "optimizer", "own", "sync", "average", "kept")
        sections: dict[str, list[Piece]] = {name: [] for name in names}
        consensus = self._consensus()
        for stored in self._stored:
            if stored.writes:
                section = "model" if stored.tensor.requires_grad else "frozen"
                common = consensus.get(id(stored.tensor), local_tensor(stored.tensor).detach())
                sections[section] += stored.extent.written(f"model/{stored.name}", common)
        for name, tensor, extent, writes in self._own_tensors(self._own):
            if writes:
                sections["own" if self._own else "optimizer"] += extent.written(name, tensor)
        for name, tensor, extent, writes in self._mode_tensors(f"replica-{self._replica}/"):
            if writes:
                sections["sync"] += extent.written(name, tensor)
        for name, tensor, extent, writes in self._average_tensors():
            if writes:
                sections["average"] += extent.written(name, tensor)
        for name, tensor in self.kept.tensors() if self.is_main else ():
            sections["kept"] += Extent.everything(tuple(tensor.shape)).pieces(name, tensor)
        return {section: pieces for section, pieces in sections.items() if pieces}

    def scalars(self) -> Callable[[], dict[str, Scalar]]:
        """Return a function that returns the scalars that the optimizer state has now."""
        return scalars_later(
            {
                f"{self._own}{update.prefix}optimizer/{stored.name}/{key}": value
                for update in self.updates
                for stored, own in self._optimizer_states(update)
                for key, value in own.items()
                if is_scalar(value)
            }
        )

    def values(self) -> dict[str, Any]:
        """Return the state that is neither a tensor nor a scalar of one parameter."""
        values: dict[str, Any] = {}
        for update in self.updates:
            if update.phase:
                values.setdefault("phases", {})[update.phase] = _values(update)
            else:
                values |= _values(update)
        return {
            **values,
            "stream": plain(self.cursor.place, "the stream") if self.cursor else None,
            "average": self.average.updates if self.average else 0,
            "kept": self.kept.saved()[0],
            "sync": {
                "replicas": self._stored[0].replicas,
                "differ": self.mode.replicas_differ,
                **self.mode.numbers(),
            },
        }

    def restore(self, saved: SavedState) -> None:
        """Restore the state of a checkpoint, whatever layout wrote it."""
        manifest = saved.manifest
        numbers = manifest.values.get("sync", {})
        self.mode.resuming(numbers)
        replicas, differed = numbers.get("replicas", 1), numbers.get("differ", False)
        same = replicas == self._stored[0].replicas
        mine = f"replica-{self._replica % replicas}/"
        # Replicas that synchronize in every step must also share one optimizer state.
        theirs = (mine if self._own else "replica-0/") if differed else ""
        pieces: list[Piece] = []
        consensus = self._consensus()
        for stored in self._stored:
            common = consensus.get(id(stored.tensor), local_tensor(stored.tensor).detach())
            pieces += stored.extent.pieces(f"model/{stored.name}", common)
        self._prepare_optimizers(manifest, theirs)
        for name, tensor, extent, _ in self._optimizer_tensors(theirs):
            pieces += extent.pieces(name, tensor)
        for name, tensor, extent, _ in self._mode_tensors(mine):
            if name in manifest.tensors and (same or not name.startswith("replica-")):
                pieces += extent.pieces(name, tensor)
        if manifest.values.get("average"):
            for name, tensor, extent, _ in self._average_tensors():
                pieces += extent.pieces(name, tensor)
        fill(pieces, saved)
        if differed:
            chosen = [self._replica] if same and self._own else list(range(replicas))
            self._restore_weights(saved, chosen)
        elif consensus:
            every = self.mode.context.parameters
            foreach_copy_(
                [each.local for each in every], [consensus[id(each.parameter)] for each in every]
            )
        self._restore_values(manifest)
        self.kept.restore(saved)
        self.mode.restored(numbers, same_replicas=same)

    def prepare(self, manifest: Contents, device: torch.device) -> None:
        """Restore the scalars of a state, and allocate its tensors, to be filled later."""
        self.kept.prepare(manifest, device)
        self.mode.resuming(manifest.values["sync"])
        self._prepare_optimizers(manifest, "")
        self._restore_values(manifest)

    def optimizer_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the optimizers' tensors and averages, if they are equal on all replicas."""
        for name, tensor, _, _ in (*self._optimizer_tensors(""), *self._average_tensors()):
            yield name, tensor

    def _restore_values(self, manifest: Contents) -> None:
        for update in self.updates:
            values = _kept_values(update, manifest)
            if update.schedule is not None:
                load_schedule(update.schedule, values["schedule"], manifest.step // update.every)
            update.scaling.restore(values["scaling"])
        if self.cursor is not None:
            self.cursor.place = manifest.values.get("stream") or BEGINNING
        if self.average is not None:
            self.average.updates = manifest.values.get("average", 0)

    @property
    def _replica(self) -> int:
        return self._stored[0].replica

    @property
    def _own(self) -> str:
        """Name prefix of this replica's own tensors; empty if replicas do not differ."""
        return f"replica-{self._replica}/" if self.mode.replicas_differ else ""

    def _consensus(self) -> dict[int, torch.Tensor]:
        """Return the weights that the replicas share, by the id of the parameter."""
        common = self.mode.consensus()
        if common is None:
            return {}
        return {
            id(each.parameter): tensor
            for each, tensor in zip(self.mode.context.parameters, common, strict=True)
        }

    def _restore_weights(self, saved: SavedState, replicas: Sequence[int]) -> None:
        """Restore the mean of the weights of `replicas`: this replica alone, or all of them if
        their number changed, so that no replica's progress is lost."""
        learning = [stored for stored in self._stored if stored.tensor.requires_grad]
        total = [torch.zeros_like(local_tensor(stored.tensor).detach()) for stored in learning]
        for replica in replicas:
            one = [torch.empty_like(each) for each in total]
            fill(
                [
                    piece
                    for stored, tensor in zip(learning, one, strict=True)
                    for piece in stored.in_replica.pieces(
                        f"replica-{replica}/model/{stored.name}", tensor
                    )
                ],
                saved,
            )
            foreach_add_(total, one, alpha=1 / len(replicas))
        foreach_copy_([local_tensor(stored.tensor).detach() for stored in learning], total)

    def _own_tensors(self, whose: str) -> Iterator[tuple[str, torch.Tensor, Extent, bool]]:
        """Yield the optimizers' tensors and, if replicas differ, this replica's weights."""
        if whose:
            for stored in self._stored:
                if stored.tensor.requires_grad:
                    local = local_tensor(stored.tensor).detach()
                    yield f"{whose}model/{stored.name}", local, stored.in_replica, stored.writes
        yield from self._optimizer_tensors(whose)

    def _mode_tensors(self, whose: str) -> Iterator[tuple[str, torch.Tensor, Extent, bool]]:
        """Yield the tensors of the synchronization mode."""
        by_parameter = {id(stored.tensor): stored for stored in self._stored}
        for kept in self.mode.saved_tensors():
            stored = by_parameter[id(kept.of.parameter)]
            name = f"sync/{kept.kind}/{kept.of.name}"
            if kept.common:
                yield name, kept.tensor, stored.extent, stored.writes
            else:
                yield f"{whose}{name}", kept.tensor, stored.in_replica, stored.writes

    def _average_tensors(self) -> Iterator[tuple[str, torch.Tensor, Extent, bool]]:
        """Yield the averages of the weights."""
        for stored in self._stored if self.average is not None else ():
            average = self.average.of(stored.tensor) if self.average else None
            if average is not None:
                yield f"average/{stored.name}", average, stored.extent, stored.writes

    def _optimizer_states(self, update: Update) -> Iterator[tuple[StateTensor, dict[str, Any]]]:
        for stored in self._stored:
            if stored.tensor in update.optimizer.state:
                yield stored, flattened(update.optimizer.state[stored.tensor])

    def _optimizer_tensors(self, whose: str) -> Iterator[tuple[str, torch.Tensor, Extent, bool]]:
        for update in self.updates:
            for stored, state in self._optimizer_states(update):
                for key, value in state.items():
                    if isinstance(value, torch.Tensor) and not is_scalar(value):
                        extent = self._extent_of_state(update, stored, key, value)
                        name = f"{whose}{update.prefix}optimizer/{stored.name}/{key}"
                        yield name, local_tensor(value).detach(), extent, stored.writes

    def _extent_of_state(
        self, update: Update, stored: StateTensor, key: str, value: torch.Tensor
    ) -> Extent:
        extent = stored.in_replica if self._own else stored.extent
        if value.shape == stored.tensor.shape:
            return extent
        if extent.whole == tuple(stored.tensor.shape) and not is_sharded(stored.tensor):
            # A parameter that this worker holds whole may have state of any shape.
            return Extent.everything(tuple(value.shape)).among(extent.copies, extent.copy)
        raise PacelineError(
            f"{type(update.optimizer).__name__} keeps {key} of shape {list(value.shape)} for"
            f" {stored.name}, of which this worker holds {list(stored.tensor.shape)}: it cannot be"
            " saved, since its place in the whole tensor is unknown",
            fix="use another optimizer, or a layout without shards and tensor",
        )

    def _prepare_optimizers(self, manifest: Contents, whose: str) -> None:
        for update in self.updates:
            self._prepare_optimizer(update, manifest, f"{whose}{update.prefix}")

    def _prepare_optimizer(self, update: Update, manifest: Contents, whose: str) -> None:
        """Allocate the optimizer state, which the optimizer creates only in its first step."""
        optimizer, groups = update.optimizer, _kept_values(update, manifest)["groups"]
        if len(groups) != len(optimizer.param_groups):
            raise PacelineError(
                f"the optimizer has {len(optimizer.param_groups)} groups of parameters here,"
                f" but {len(groups)} in the checkpoint of step {manifest.step}",
                fix="resume with the optimizer that the run was started with, or start a new run",
            )
        keys = keys_by_parameter(manifest, whose)
        state: dict[int, dict[str, Any]] = {}
        numbers = {
            id(parameter): number
            for number, parameter in enumerate(
                each for group in optimizer.param_groups for each in group["params"]
            )
        }
        for stored in self._stored:
            if id(stored.tensor) in numbers and stored.name in keys:
                rooms = {key: room_for(stored, manifest, key, whose) for key in keys[stored.name]}
                state[numbers[id(stored.tensor)]] = with_lists(rooms)
        begin = 0
        described = []
        for own, kept in zip(optimizer.param_groups, groups, strict=True):
            end = begin + len(own["params"])
            kernels = {key: own[key] for key in ("foreach", "fused") if key in own}
            described.append(kept | kernels | {"params": list(range(begin, end))})
            begin = end
        optimizer.load_state_dict({"state": state, "param_groups": described})


def _values(update: Update) -> dict[str, Any]:
    """Return the state of an update that is neither a tensor nor a scalar of one parameter."""
    groups = [
        {key: value for key, value in group.items() if key != "params"}
        for group in update.optimizer.param_groups
    ]
    schedule = update.schedule.state_dict() if update.schedule else {}
    return {
        "groups": plain(groups, "the optimizer"),
        "schedule": plain(schedule, "the schedule"),
        "scaling": update.scaling.state(),
    }


def _kept_values(update: Update, manifest: Contents) -> dict[str, Any]:
    """Return the values of an update in a checkpoint; raise if it was trained with other phases."""
    phases = manifest.values.get("phases", {})
    found: dict[str, Any] = phases.get(update.phase, {}) if update.phase else manifest.values
    if "groups" not in found:
        raise PacelineError(
            f"the checkpoint of step {manifest.step} has the phases {', '.join(phases) or 'none'},"
            f" but the training has {f'a phase {update.phase}' if update.phase else 'none'} now",
            fix="resume with the phases that the run was started with, or start a new run",
        )
    return found
