"""A model under a layout without a pipeline: on one worker, replicated, sharded or sliced."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import nn

from paceline.comm.dtensor import full_tensor
from paceline.data.loader import Batch
from paceline.parallel.batch_norm import average_running_statistics
from paceline.parallel.branches import ShardedBranches
from paceline.parallel.data_parallel import replicated, reshard, sharded, synchronizing
from paceline.parallel.gradient_norm import counted, squared_norm
from paceline.parallel.parallel_model import (
    LastBackward,
    Minimize,
    ParallelContext,
    PreparedModel,
    StateTensor,
    aliases,
    autocast,
    evaluating,
    state_dict_tensors,
)
from paceline.parallel.step.model_calls import call, checked_loss
from paceline.parallel.step.part_norms import NormsByBackward, PartNorms, ScatteredNorms
from paceline.parallel.step.step_clock import LastGradient
from paceline.parallel.weight_extent import extent
from paceline.specs import Layout, PacelineError
from paceline.specs.units import first_few
from paceline.user.training import Measure


class WholeModel:
    """A model under a layout without a pipeline."""

    shares_weights = False

    def __init__(self, built: PreparedModel, setting: ParallelContext, *, size: int) -> None:
        self.model = built.model
        self.size = size
        self._norms, self._sliced = built.norms, built.sliced
        self._layout, self._groups, self._loss = setting.layout, setting.groups, setting.loss
        self.data_group, self._sync = setting.data_group, setting.sync
        self._clock, self.trial = setting.clock, setting.trial
        self._accumulates = setting.micro_batches > 1
        self._last_gradient: LastGradient | None = None
        self._module: nn.Module = built.model
        self._branches: ShardedBranches | None = None
        self._scattered = ScatteredNorms(self._count)
        self._awaited: list[nn.Parameter] = []
        """The parameters whose gradients DDP waits for; none if it looks for unused ones."""
        self._spread()

    def _spread(self) -> None:
        self._over_workers()
        # Cached: walking all modules takes as long as reading a small model's gradients.
        self._parameters = tuple(self.model.parameters())
        self._counted = self._count()

    def _over_workers(self) -> None:
        if self._layout.shards > 1:
            self._module = sharded(
                self.model,
                self._layout,
                self._groups,
                self._clock,
                join=self._sync.by_engine,
                accumulates=self._accumulates,
                branches=self.trial.branches,
                norms=self._scattered,
            )
            if self.trial.branches:
                shards = self._groups.mesh(self._layout).get_group("shards")
                group = self.data_group if self._sync.by_engine else shards
                assert group is not None
                self._branches = ShardedBranches(self.model, group, self._groups.device)
        elif self._layout.replicas > 1 and self._sync.by_engine:
            has_branches = bool(self.trial.branches)
            self._module = replicated(
                self.model, self._layout, self._groups, find_unused=has_branches
            )
            if not has_branches:
                self._awaited = [each for each in self.model.parameters() if each.requires_grad]
            # After the last local gradient, backward only waits for the other workers' gradients.
            waits = partial(self._clock.turn, "communication")
            self._last_gradient = LastGradient(self.model.parameters(), waits)

    def rejoin(self, layout: Layout) -> None:
        """Replicate the model over a new set of workers, with the weights that each has."""
        self._layout = layout
        self.data_group = self._groups.dividing_the_batch(layout)
        if layout.batch_norm == "synchronized" and layout.data_workers > 1:
            self._norms.group = self.data_group
        self._spread()

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that this worker updates."""
        return iter(self._parameters)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return these parameters with their names in the user's model."""
        return self.model.named_parameters()

    def parts(self, batch: Batch, largest_local_batch: int) -> list[Batch]:
        """Split a local batch into micro-batches."""
        count = self._layout.micro_batches(largest_local_batch)
        return [batch] if count == 1 else list(batch.micro(count))

    def learn(
        self, parts: Sequence[Batch], minimize: Minimize, last_backward: LastBackward = nullcontext
    ) -> list[torch.Tensor]:
        """Accumulate the gradients of all micro-batches in the parameters; return their losses."""
        losses, count = [], len(parts)
        with self._sliced.computing() if self._sliced else nullcontext():
            for number, part in enumerate(parts):
                last = number == count - 1
                with (
                    self._norms.counting(part.samples, part.rows),
                    nullcontext() if count == 1 else synchronizing(self._module, last=last),
                    last_backward() if last else nullcontext(),
                ):
                    self._clock.turn("forward")
                    with autocast(self._layout, self._groups.device):
                        loss = self._loss_of(part)
                    self._clock.turn("backward")
                    torch.autograd.backward(minimize(loss, number))
                losses.append(loss.detach())
        if self._branches:
            self._branches.settle()
        if [each for each in self._awaited if each.grad is None]:  # faster than any()
            self._refuse_unused()
        if self._last_gradient:
            self._last_gradient.settle()
        return losses

    def _loss_of(self, part: Batch) -> torch.Tensor:
        return checked_loss(self._loss(call(self._module, part.inputs), part.target))

    def _refuse_unused(self) -> None:
        """Raise because replicas wait for the gradient of a parameter that was not used."""
        unused = [
            name
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad and parameter.grad is None
        ]
        module = unused[0].rpartition(".")[0]
        raise PacelineError(
            f"this step did not use {first_few(unused)}, but the samples tried before training did",
            fix=f'give Training(branches="{module}.*"), a pattern of the parameters that a step may'
            " leave unused",
        )

    def measure(self, parts: Sequence[Batch], measures: Sequence[Measure]) -> list[torch.Tensor]:
        """Return one vector of measures per micro-batch."""
        found = []
        with self._sliced.computing() if self._sliced else nullcontext():
            for part in parts:
                with (
                    self._norms.counting(part.samples, part.rows),
                    autocast(self._layout, self._groups.device),
                ):
                    values = self._measured(part, measures)
                    # A metric may return a number of the host.
                    found.append(torch.stack([each.to(self._groups.device) for each in values]))
        return found

    def _measured(self, part: Batch, measures: Sequence[Measure]) -> list[torch.Tensor]:
        output = call(self._module, part.inputs)
        if self._sliced:
            output = self._sliced.whole_output(output)
        return [checked_loss(each(output, part.target)) for each in measures]

    def part_norms(self) -> PartNorms | None:
        """Return what sees the gradients of a batch's parts inside its block."""
        return self._scattered if self._layout.shards > 1 else NormsByBackward(self.counted())

    def counted(self) -> Sequence[nn.Parameter]:
        """Return the parameters that this worker adds to a norm over all of them."""
        return self._counted

    def _count(self) -> list[nn.Parameter]:
        is_sliced = self._sliced.is_sliced if self._sliced else None
        named = self.model.named_parameters()
        return counted(named, self._layout, self._groups, is_sliced=is_sliced)

    def squared_norm(self) -> torch.Tensor:
        """Return the squared gradient norm over all parameters of the model."""
        differ = self._sync.replicas_differ
        return squared_norm(self.counted(), self._layout, self._groups, replicas_differ=differ)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every weight of the whole model with its name."""
        for name, tensor in self.model.state_dict().items():
            whole = full_tensor(tensor)
            sliced = self._sliced is not None and self._sliced.is_sliced(name)
            yield name, self._sliced.gather(name, whole) if self._sliced and sliced else whole

    def names(self) -> dict[str, str]:
        """Map every name in the state dict to the first name of its tensor."""
        first = aliases(self.model)
        return {name: first.get(name, name) for name in self.model.state_dict()}

    def stored(self) -> Iterator[StateTensor]:
        """Yield the parameters and buffers that this worker holds and a checkpoint stores."""
        rank, replicas = self._groups.placement.rank, self._layout.replicas
        replica = self._layout.position(rank).replica
        for name, tensor in state_dict_tensors(self.model):
            where = extent(name, tensor, self._layout, rank, self._sliced)
            yield StateTensor(name, tensor, where, replicas, replica)

    def settle(self) -> None:
        """Make the values that may differ between replicas, such as running statistics, equal."""
        average_running_statistics(self.model, self.data_group)

    def reshard(self) -> None:
        """Free weights that were gathered from shards, before the shards are changed."""
        if self._layout.shards > 1:
            reshard(self._module)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Settle the model, and put it in evaluation mode inside the block."""
        self.settle()
        with evaluating(self.model):
            yield

    def close(self) -> None:
        """Release the process groups."""
        if self._last_gradient:
            self._last_gradient.close()
            self._last_gradient = None
        self._norms.close()
        self._branches = self.data_group = None
        self._awaited = []
        self._module = self.model
