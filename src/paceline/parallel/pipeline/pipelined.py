"""A model under pipeline parallelism, run by a schedule of torch.distributed.pipelining."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from paceline.comm.dtensor import full_tensor, local_tensor
from paceline.data.loader import Batch
from paceline.parallel.batch_norm import BatchNorms, average_running_statistics
from paceline.parallel.data_parallel import average, reshard, sharded
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
from paceline.parallel.pipeline.stages import Cut, Stage, let_go
from paceline.parallel.step.model_calls import call, checked_loss
from paceline.parallel.step.part_norms import NormsByBackward, PartNorms, ScatteredNorms
from paceline.parallel.weight_extent import extent
from paceline.user.training import Measure

_SCHEDULES: dict[str, Any] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zero-bubble": ScheduleInterleavedZeroBubble,
}

Conclude = Callable[[Any, Batch, int], torch.Tensor]
"""Map the model's output, the micro-batch and its index to the last stage's result."""


class PipelinedModel:
    """A model under a layout with a pipeline; this worker holds one or two of its stages."""

    def __init__(
        self,
        built: Mapping[int, PreparedModel],
        stages: Mapping[int, Stage],
        cut: Cut,
        whole: Mapping[str, torch.Tensor],
        setting: ParallelContext,
    ) -> None:
        self.model = next(iter(built.values())).model
        self.size = sum(whole[name].numel() for name in cut.owners)
        self._built, self._stages, self._cut, self._whole = built, stages, cut, whole
        self._layout, self._groups, self._loss = setting.layout, setting.groups, setting.loss
        self.data_group, self._sync = setting.data_group, setting.sync
        self._clock, self.trial = setting.clock, setting.trial
        self._sliced = next(iter(built.values())).sliced
        self._scattered = ScatteredNorms(self.counted)
        self._schedules: dict[tuple[int, int], Any] = {}
        self._alias = aliases(self.model)
        for number, stage in stages.items():
            stage.hold(cut.span(number))
            let_go(stage.model, [name for name, of in cut.owners.items() if number not in of])
        self._modules: dict[int, nn.Module] = {
            number: (
                sharded(
                    stage,
                    self._layout,
                    self._groups,
                    self._clock,
                    join=self._sync.by_engine,
                    accumulates=setting.micro_batches > 1,
                    norms=self._scattered,
                )
                if self._layout.shards > 1
                else stage
            )
            for number, stage in stages.items()
        }
        self._shared = self._groups_of_shared()
        self.shares_weights = bool(self._shared)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that this worker updates."""
        for stage in self._stages.values():
            yield from stage.model.parameters()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield these parameters with their names in the user's model."""
        for stage in self._stages.values():
            yield from stage.model.named_parameters()

    def parts(self, batch: Batch, largest_local_batch: int) -> list[Batch]:
        """Split a local batch into micro-batches of one size, as the stages' buffers need."""
        count = self._layout.micro_batches(largest_local_batch)
        return list(batch.micro(count, rows=-(-largest_local_batch // count)))

    def learn(
        self, parts: Sequence[Batch], minimize: Minimize, last_backward: LastBackward = nullcontext
    ) -> list[torch.Tensor]:
        """Accumulate the gradients of all micro-batches in the parameters and return their losses.

        A stage accumulates over all micro-batches in turn, so `last_backward` does not apply.
        """
        del last_backward
        losses: list[torch.Tensor] = []

        def conclude(output: Any, part: Batch, number: int) -> torch.Tensor:
            loss = checked_loss(self._loss(*part.counted(output)))
            losses.append(loss.detach())
            return minimize(loss, number)

        self._clock.turn("pipeline")
        self._run(parts, conclude, "step")
        self._clock.turn("communication")
        self._add_up_shared()
        if self._layout.replicas > 1 and self._layout.shards == 1 and self._sync.by_engine:
            gradients = [
                local_tensor(each.grad) for each in self.parameters() if each.grad is not None
            ]
            group = self._groups.mesh(self._layout).get_group("replicas")
            average(gradients, group, self._layout.bucket_megabytes << 20)
        return losses

    def measure(self, parts: Sequence[Batch], measures: Sequence[Measure]) -> list[torch.Tensor]:
        """Return one vector of measures per micro-batch; none without the last stage."""
        found: list[torch.Tensor] = []

        def conclude(output: Any, part: Batch, number: int) -> torch.Tensor:
            del number
            whole = self._sliced.whole_output(output) if self._sliced else output
            output, target = part.counted(whole)
            values = (checked_loss(each(output, target)) for each in measures)
            found.append(torch.stack([each.to(self._groups.device) for each in values]))
            return found[-1]

        self._run(parts, conclude, "eval")
        return found

    def squared_norm(self) -> torch.Tensor:
        """Return the squared gradient norm over all parameters of the model."""
        differ = self._sync.replicas_differ
        return squared_norm(self.counted(), self._layout, self._groups, replicas_differ=differ)

    def _counted_once(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of this worker's stages, shared ones in their first stage only."""
        for number, stage in self._stages.items():
            for name, parameter in stage.model.named_parameters():
                if number == min(self._cut.owners[name]):
                    yield name, parameter

    def part_norms(self) -> PartNorms | None:
        """Return what sees the gradients of micro-batches; None if a stage has not all of one."""
        if self.shares_weights:
            return None
        return self._scattered if self._layout.shards > 1 else NormsByBackward(self.counted())

    def counted(self) -> Sequence[nn.Parameter]:
        """Return the parameters that this worker adds to a norm over all of them."""
        is_sliced = self._sliced.is_sliced if self._sliced else None
        return counted(self._counted_once(), self._layout, self._groups, is_sliced=is_sliced)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every weight of the whole model with its name, broadcast from its worker."""
        group = self._groups.mesh(self._layout).get_group("pipeline")
        held = {number: stage.model.state_dict() for number, stage in self._stages.items()}
        for name, form in self._whole.items():
            owner = self._owner(name)
            if owner in held:
                local = held[owner][name]
                whole = full_tensor(local)
                if self._sliced and self._sliced.is_sliced(name):
                    whole = self._sliced.gather(name, whole)
                whole = whole.contiguous()
            else:
                whole = torch.empty_like(form, device=self._groups.device)
            dist.broadcast(whole, group=group, group_src=owner % self._layout.pipeline)
            yield name, whole

    def names(self) -> dict[str, str]:
        """Map every name in the whole model's state dict to the first name of its tensor."""
        return {name: self._alias.get(name, name) for name in self._whole}

    def stored(self) -> Iterator[StateTensor]:
        """Yield the parameters and buffers that this worker holds and a checkpoint stores."""
        rank, replicas = self._groups.placement.rank, self._layout.replicas
        replica = self._layout.position(rank).replica
        for number, stage in self._stages.items():
            for name, tensor in state_dict_tensors(stage.model):
                where = extent(name, tensor, self._layout, rank, self._sliced)
                writes = number == self._owner(name)
                yield StateTensor(name, tensor, where, replicas, replica, writes=writes)

    def settle(self) -> None:
        """Make the values that may differ between replicas, such as running statistics, equal."""
        for stage in self._stages.values():
            average_running_statistics(stage.model, self.data_group)

    def reshard(self) -> None:
        """Free weights that were gathered from shards, before the shards are changed."""
        if self._layout.shards > 1:
            for module in self._modules.values():
                reshard(module)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Settle the model, and put it in evaluation mode inside the block."""
        self.settle()
        with evaluating(*(stage.model for stage in self._stages.values())):
            yield

    def close(self) -> None:
        """Release the process groups."""
        for built in self._built.values():
            built.norms.close()
        self.data_group = None
        self._schedules.clear()
        self._shared.clear()
        self._modules.clear()

    def _run(self, parts: Sequence[Batch], conclude: Conclude, method: str) -> None:
        for number, stage in self._stages.items():
            stage.work = self._work(iter(enumerate(parts)), conclude, self._built[number].norms)
        schedule = self._schedule(len(parts), parts[0].rows, method)
        # The batch reaches the stages through `work`; a target makes the schedule ask for a loss.
        target = torch.zeros(len(parts))
        try:
            with self._sliced.computing() if self._sliced else nullcontext():
                getattr(schedule, method)(target=target, return_outputs=False)
        except RuntimeError as error:
            # The schedule wraps a stage's exception in a message about its arguments.
            raise (error.__cause__ or error) from None

    def _work(
        self, parts: Iterator[tuple[int, Batch]], conclude: Conclude, norms: BatchNorms
    ) -> Callable[[nn.Module, bool], Any]:
        def work(model: nn.Module, is_last: bool) -> Any:
            number, part = next(parts)
            with (
                norms.counting(part.samples, part.rows),
                autocast(self._layout, self._groups.device),
            ):
                output = call(model, part.inputs)
                return conclude(output, part, number) if is_last else None

        return work

    def _schedule(self, count: int, rows: int, method: str) -> Any:
        key = (count, rows)
        if key not in self._schedules:
            group = self._groups.mesh(self._layout).get_group("pipeline")
            total = self._layout.stages
            stages = [
                PipelineStage(
                    module,
                    number,
                    total,
                    self._groups.device,
                    input_args=self._cut.arguments(number, rows),
                    output_args=(
                        self._cut.arguments(number + 1, rows)
                        if number + 1 < total
                        else (torch.empty((), device="meta", requires_grad=True),)
                    ),
                    group=group,
                )
                for number, module in self._modules.items()
            ]
            self._schedules[key] = _SCHEDULES[self._layout.schedule](
                stages if total > self._layout.pipeline else stages[0],
                n_microbatches=count,
                loss_fn=lambda output, target: output,
                scale_grads=False,
            )
        return self._schedules[key]

    def _owner(self, name: str) -> int:
        """Return the stage that provides a weight or buffer."""
        if name in self._alias:
            return min(self._cut.owners[self._alias[name]])
        module = name.rpartition(".")[0]
        beside = [first for other, first in self._alias.items() if other.startswith(f"{module}.")]
        return min(self._cut.owners[beside[0]]) if beside else 0

    def _groups_of_shared(self) -> dict[str, dist.ProcessGroup | None]:
        """Map each weight held by several stages to the group that sums its gradients."""
        made: dict[frozenset[int], dist.ProcessGroup | None] = {}
        found: dict[str, dist.ProcessGroup | None] = {}
        for name, stages in self._cut.owners.items():
            workers = frozenset(stage % self._layout.pipeline for stage in stages)
            if len(stages) > 1:
                if len(workers) > 1 and workers not in made:
                    made[workers] = self._groups.among_stages(self._layout, workers)
                found[name] = made.get(workers)
        return found

    def _add_up_shared(self) -> None:
        for name, group in self._shared.items():
            copies = [
                local_tensor(gradient)
                for number, stage in self._stages.items()
                if number in self._cut.owners[name]
                and (gradient := stage.model.get_parameter(name).grad) is not None
            ]
            if not copies:
                continue
            total = copies[0] if len(copies) == 1 else torch.stack(copies).sum(0)
            if group is not None:
                dist.all_reduce(total, group=group)
            for copy in copies:
                copy.copy_(total)
