"""Build a model under a layout and compare it with the plain model before it trains."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from paceline.comm.groups import Groups
from paceline.data.loader import Batch, collated
from paceline.parallel.batch_norm import prepare_batch_norm
from paceline.parallel.blocks.compiled import compile_blocks
from paceline.parallel.blocks.recompute import recompute
from paceline.parallel.deferred.memory import WithinMemory, within_memory
from paceline.parallel.parallel_model import (
    ParallelContext,
    ParallelModel,
    PreparedModel,
    autocast,
    evaluating,
)
from paceline.parallel.phased_model import PhasedModel, check_forward, check_phases_fit
from paceline.parallel.sample_trial import SampleTrial, try_samples
from paceline.parallel.step.full_precision import full_precision
from paceline.parallel.step.model_calls import call, checked_loss
from paceline.parallel.step.step_clock import Clock
from paceline.parallel.whole_model import WholeModel
from paceline.specs import Layout, PacelineError, SyncSettings, default_sync
from paceline.user.training import Training

if TYPE_CHECKING:
    from paceline.parallel.forward_trace import Trace
    from paceline.parallel.pipeline.stages import Cut, Stage
    from paceline.parallel.slices.sliced_model import Cuts, Sliced


def parallelize(
    training: Training,
    layout: Layout,
    groups: Groups,
    *,
    largest_local_batch: int,
    sync: SyncSettings | None = None,
    clock: Clock | None = None,
    trial: bool = True,
) -> ParallelModel:
    """Build the model on this worker under its layout.

    `largest_local_batch` is that of any worker. With `trial`, a layout that changes how the model
    is computed is first compared with the plain model on two samples. `clock`
    measures where the time of a step goes.
    """
    layout.check()
    sync = sync or default_sync()
    if training.phases is not None:
        check_phases_fit(layout, sync)
    with within_memory(layout, groups) as memory:
        model = memory.build(lambda: _plain(training, groups))
        # Survivors of a regroup keep their model: one that is built later must be laid out alike.
        tries = trial and (layout.data_workers > 1 or groups.placement.roster is not None)
        setting = ParallelContext(
            layout=layout,
            groups=groups,
            loss=training.loss,
            data_group=groups.dividing_the_batch(layout),
            sync=sync,
            clock=clock or Clock(),
            trial=try_samples(training, model, groups.device) if tries else SampleTrial(),
            micro_batches=max(layout.micro_batches(largest_local_batch), sync.batch_parts or 1),
        )

        if layout.pipeline > 1 and setting.trial.branches:
            raise PacelineError(
                f"some samples leave {min(setting.trial.branches)} unused, but the stages of"
                " several pipelines average the gradients of the same parameters",
                fix="use replicas, --shards or --tensor instead of --pipeline",
            )

        def prepare(model: nn.Module) -> PreparedModel:
            count = setting.micro_batches
            norms = prepare_batch_norm(model, layout, setting.data_group, micro_batches=count)
            recompute(model, layout, norms.again)
            return PreparedModel(model, norms)

        built = prepare(model)
        if layout.tensor * layout.pipeline > 1:
            return _parallelize_traced(
                built,
                lambda: prepare(memory.build(lambda: _plain(training, groups))),
                training,
                setting,
                memory,
                trial,
            )
        size = _size(built.model)
        memory.prepare_shards()
        if training.phases is not None:
            if training.validation is not None and training.validation.metrics:
                check_forward(model)
            return PhasedModel(built, setting, size=size, phases=training.phases)
        if layout.compile:
            compile_blocks(built.model)
        return WholeModel(built, setting, size=size)


def _plain(training: Training, groups: Groups) -> nn.Module:
    """Build the user's model; any number of workers starts from the same initial weights."""
    torch.manual_seed(training.seed)
    return training.model().to(groups.device)


def _parallelize_traced(
    built: PreparedModel,
    build: Callable[[], PreparedModel],
    training: Training,
    setting: ParallelContext,
    memory: WithinMemory,
    trial: bool,
) -> ParallelModel:
    # Imported here because data parallelism does not need these modules and starts faster without.
    from paceline.parallel.forward_trace import trace  # noqa: PLC0415
    from paceline.parallel.pipeline.pipelined import PipelinedModel  # noqa: PLC0415
    from paceline.parallel.pipeline.stages import Stage, cut  # noqa: PLC0415
    from paceline.parallel.trial import Reference  # noqa: PLC0415

    layout, groups = setting.layout, setting.groups
    model = built.model
    few, more = (
        collated(training.first(samples), groups.device, training.form) for samples in (2, 3)
    )
    with evaluating(model), torch.random.fork_rng(devices=[]), full_precision():
        with autocast(layout, groups.device):
            seen = trace(model, lambda: call(model, few.inputs))
            again = trace(model, lambda: call(model, more.inputs)) if layout.pipeline > 1 else seen
        where = cut(model, seen, again, layout.stages) if layout.pipeline > 1 else None
        whole = {
            name: torch.empty_like(tensor, device="meta")
            for name, tensor in model.state_dict().items()
        }
        size, cuts = _size(model), _cuts(model, seen, layout, groups)
        first = layout.position(groups.placement.rank).stage
        numbers = range(first, layout.stages, layout.pipeline)

        def own_part(name: str, gradient: torch.Tensor) -> torch.Tensor | None:
            if where is not None and where.owners[name].isdisjoint(numbers):
                return None
            return cuts.own(name, gradient) if cuts else gradient

        reference = (
            Reference.of(model, lambda: _loss(training, few, model), own_part) if trial else None
        )
        sliced = memory.arrange(partial(_slice, model, cuts, layout))
        stage = Stage(model, where.few) if where else None
        if reference:
            with sliced.computing() if sliced else nullcontext():
                differ = reference.differences(
                    model, lambda: _chained_loss(training, few, model, stage, where)
                )
            _refuse_if_any(model, differ, layout, groups)
        reference = None  # its gradients take as much memory as this worker's part of the weights
    built = PreparedModel(model, built.norms, sliced)
    memory.prepare_shards()
    if stage is None or where is None:
        return WholeModel(built, setting, size=size)
    here, stages = {first: built}, {first: stage}
    for number in numbers[1:]:
        another = build()
        cut_model = memory.arrange(partial(_slice, another.model, cuts, layout))
        here[number] = PreparedModel(another.model, another.norms, cut_model)
        stages[number] = Stage(another.model, where.few)
    return PipelinedModel(here, stages, where, whole, setting)


def _cuts(model: nn.Module, seen: "Trace", layout: Layout, groups: Groups) -> "Cuts | None":
    """Return how tensor parallelism slices the parameters of a model; None if tensor = 1."""
    if layout.tensor == 1:
        return None
    from paceline.parallel.slices.sliced_model import Cuts  # noqa: PLC0415
    from paceline.parallel.slices.slicing import find_slicing  # noqa: PLC0415

    return Cuts(model, find_slicing(model, seen, layout), groups.mesh(layout)["tensor"])


def _slice(model: nn.Module, cuts: "Cuts | None", layout: Layout) -> "Sliced | None":
    """Slice a model in place; return None if tensor = 1."""
    if cuts is None:
        return None
    from paceline.parallel.slices.sliced_model import Sliced  # noqa: PLC0415

    return Sliced(model, cuts, sequence=layout.sequence)


def _refuse_if_any(model: nn.Module, differ: Sequence[str], layout: Layout, groups: Groups) -> None:
    """Raise on all workers if the results of any differ; each has compared its own part."""
    from paceline.parallel.trial import refuse_layout  # noqa: PLC0415

    wrong = groups.sum(torch.tensor(float(bool(differ)), device=groups.device))
    if wrong.item():
        how = f"laid out with tensor={layout.tensor} and pipeline={layout.pipeline}"
        refuse_layout(model, differ or ["gradients on other workers"], how)


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _loss(training: Training, batch: Batch, model: Callable[..., Any]) -> torch.Tensor:
    return checked_loss(training.loss(call(model, batch.inputs), batch.target))


def _chained_loss(
    training: Training,
    batch: Batch,
    model: nn.Module,
    stage: "Stage | None",
    where: "Cut | None",
) -> torch.Tensor:
    """Return the loss of a batch; with a pipeline, run all stages one after the other."""
    if stage is None or where is None:
        return _loss(training, batch, model)
    sent: Any = ()
    stage.work = lambda model, is_last: (
        _loss(training, batch, model) if is_last else call(model, batch.inputs)
    )
    for number in range(len(where.first_blocks)):
        stage.hold(where.span(number))
        sent = stage(*sent)
    loss: torch.Tensor = sent
    return loss
