"""The user's description of a training, written once for any number of devices."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from paceline.data.batch_stages import BatchStages
from paceline.data.collation.form import BatchForm, Collate, Cut, Size, Split
from paceline.data.order import Order, Sequential
from paceline.data.order_choice import order_of
from paceline.data.streams import Stream, is_stream
from paceline.learning.critical_batch import samples_times
from paceline.learning.growth import sizes
from paceline.specs import PacelineError
from paceline.user.buffer_rules import BufferRules, check_rules
from paceline.user.data_checks import check_without_index, samples_of
from paceline.user.field_checks import OF_PHASES, check_fields, check_functions
from paceline.user.growing_batch import (
    Batch,
    Growth,
    TunedSamples,
    check_can_grow,
    check_stages,
    plan_of,
)
from paceline.user.parameters import Parameters
from paceline.user.phase import Phase, check_phases, of_phases
from paceline.user.pretrained import Pretrained
from paceline.user.validation import Validation

Measure = Callable[[Any, Any], torch.Tensor]
"""`measure(output, target)`: return a scalar, the mean over the samples of the batch."""


_NUMBERS = ("batch", "tuned_at", "epochs", "steps")


@dataclass(frozen=True, kw_only=True)
class Training:
    """A model, its loss, data, optimizer and batch; independent of devices and workers."""

    model: Callable[[], nn.Module]
    """Build the model; called once on every worker, with the same random seed."""
    loss: Measure = of_phases
    """`loss(output, target)`: return a scalar, the mean over the samples of the batch."""
    data: Any
    """A dataset of pairs `(inputs, target)`: map-style, or a stream that is only iterated over.
    None: your own loop makes the batches."""
    optimizer: Callable[[Parameters], torch.optim.Optimizer] = of_phases
    """Build the optimizer for the given parameters; `.named()` yields them with their names."""
    batch: Batch
    """Global batch: samples per optimizer step over all workers. `{0: 128, 1_000_000: 512}`: from
    this sample on. `paceline.grow(128, to=4096)`: by the measured gradient noise."""
    tuned_at: int | None = None
    """The batch that rate, betas, weight decay, schedule and steps were tuned at, if that is
    another one: rules then change them for `batch`, and a line says how."""
    critical_batch: float | None = None
    """The critical batch, such as a report suggests: with `tuned_at`, it says how many more samples
    a larger batch gets, and where SGD's rate levels off."""
    epochs: int | None = None
    """Number of passes over the data. Give this or `steps`."""
    steps: int | None = None
    """Number of optimizer steps; if the batch grows, of the first one: larger steps then have as
    many samples together. Give this or `epochs`."""
    schedule: Callable[[torch.optim.Optimizer], LRScheduler] | None = None
    """Build the learning-rate schedule, which advances once per optimizer step; if the batch grows,
    once per step of the first one."""
    clip: float | None = None
    """Clip the gradient to this norm over all parameters."""
    collate: Collate | None = None
    """`collate(samples)`: return a batch of a list of samples, as DataLoader's `collate_fn`."""
    size: Size | None = None
    """`size(batch)`: return the samples of a batch whose tensors do not have one row for each."""
    cut: Cut | None = None
    """`cut(batch, rows)`: return a batch of a range of the samples, for micro-batches."""
    split: Split | None = None
    """`split(batch)`: return `(inputs, target)`, for samples that are not pairs."""
    weight: Callable[[Any], torch.Tensor] | None = None
    """`weight(target)`: return the number of elements, such as tokens, that the loss averages over,
    if these are not samples."""
    shuffle: bool = True
    order: Callable[[int], Order] | None = None
    """`order(seed)`: return the sample order, such as a curriculum; overrides the dataset's own."""
    average: float | None = None
    """Decay of an exponential moving average of the weights, such as 0.999; `trainer.evaluate` and
    `trainer.export` use the averaged weights."""
    validation: Validation | None = None
    """Evaluation on held-out data while training: metrics, the best model, early stopping."""
    seed: int = 0
    """Seed of the initial weights, the sample order and dropout."""
    loaders: int = 0
    """Number of data-loading processes per worker."""
    phases: Mapping[str, Phase] | None = None
    """Several updates per step, by name and in this order, instead of `loss` and `optimizer`."""
    branches: str | None = None
    """A pattern of the names of parameters that a step may leave unused, such as `*.experts.*`, in
    addition to those that a trial before training finds."""
    buffers: BufferRules | None = None
    """How workers agree on buffers that forward changes: by the "average" over the samples, the
    "sum" of the changes, or the value of "worker0"; for all buffers or by a pattern of names."""
    noise_every: int | None = None
    """Steps between measurements of the gradient noise scale; 0 measures none. None: 10, or more
    where that would cost more than 1 % of the time."""
    pretrained: Pretrained | str | Path | None = None
    """Weights to start from: a safetensors file, or a folder as of `save_pretrained`."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __new__(cls, *values: object, **given: object) -> "Training":
            """Name a field that is unknown or missing; copying gives none at all."""
            if values or given:
                check_fields(fields(cls), given, positional=len(values))
            return super().__new__(cls)

    def __post_init__(self) -> None:
        check_functions(self)
        if self.pretrained is not None:
            Pretrained.of(self.pretrained)
        if self.phases is not None:
            check_phases(self.phases, [name for name in OF_PHASES if self._is_given(name)])
        if self.has_index:
            samples_of(self.data)
        else:
            check_without_index(
                self.stream,
                epochs=self.epochs,
                has_order=self.order is not None,
                loaders=self.loaders,
            )
        if self.buffers is not None:
            check_rules(self.buffers)
        if not isinstance(self.branches, str | None):
            raise PacelineError(
                f"Training(branches=…) is of type {type(self.branches).__name__}",
                fix='give a pattern of parameter names, such as branches="*.experts.*"',
            )
        self._check_evaluation()
        if (self.epochs is None) == (self.steps is None):
            given = "both" if self.epochs is not None else "neither"
            raise PacelineError(
                f"Training needs epochs=… or steps=…; {given} was given", fix="give one of them"
            )
        if self.critical_batch is not None and not self.critical_batch > 0:
            raise PacelineError(
                f"Training(critical_batch={self.critical_batch!r}) is no number of samples",
                fix="give the one that a report suggests, or leave critical_batch=… out",
            )
        if isinstance(self.batch, Mapping):
            check_stages(self.batch)
        check_can_grow(
            self.batch,
            makes_data=self.data is None,
            phases=self.phases is not None,
            noise_every=self.noise_every,
        )
        grows = isinstance(self.batch, Mapping | Growth)
        for name in ("tuned_at", "epochs", "steps") if grows else _NUMBERS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, int):
                raise PacelineError(
                    f"Training({name}=…) is of type {type(value).__name__}", fix="give an integer"
                )
            if value is not None and value < 1:
                raise PacelineError(
                    f"Training({name}={value}) trains nothing", fix=f"give {name} of at least 1"
                )

    def _check_evaluation(self) -> None:
        if self.validation is not None:
            samples_of(self.validation.data)
        if self.average is not None and not (
            isinstance(self.average, float) and 0 < self.average < 1
        ):
            raise PacelineError(
                f"Training(average={self.average!r}) is no decay between 0 and 1",
                fix="give a number such as 0.999, or leave average= out",
            )

    def replace(self, **changes: Any) -> "Training":
        """Return this training with some fields changed, checked again."""
        return replace(self, **changes)

    @property
    def form(self) -> BatchForm:
        """How samples become a batch, and how a batch is counted, cut and split."""
        return BatchForm(self.collate, self.size, self.cut, self.split)

    @cached_property
    def stream(self) -> Stream | None:
        """The data as a stream, if it is one."""
        return Stream(self.data) if is_stream(self.data) else None

    @property
    def has_index(self) -> bool:
        """Whether samples have an index, as in a map-style dataset; otherwise positions count."""
        return self.data is not None and self.stream is None

    def _is_given(self, name: str) -> bool:
        default = next(each.default for each in fields(self) if each.name == name)
        return getattr(self, name) is not default

    @property
    def samples(self) -> int:
        """Number of samples in the dataset; without an index, of the whole training."""
        if self.has_index:
            return samples_of(self.data)
        if self.steps is not None:
            return self.steps * self.own_batch
        assert self.stream is not None
        return (self.epochs or 1) * (self.stream.length or 1)

    def first(self, count: int) -> list[Any]:
        """Return the first samples of the data; a short dataset repeats."""
        if self.stream is not None:
            return self.stream.head(count)
        if self.data is None:
            raise PacelineError(
                "this training makes its own data, so there are no samples to try it with",
                fix="start it with `paceline run`, as replicas or shards",
            )
        return [self.data[number % self.samples] for number in range(count)]

    def sample_order(self) -> Order:
        """Return the sample order: `order`, else the dataset's own, else as `shuffle` says."""
        if not self.has_index:
            return Sequential(self.samples)
        return order_of(self.data, self.samples, self.seed, self.shuffle, self.order)

    @property
    def grows(self) -> bool:
        """Whether the batch changes while training."""
        return isinstance(self.batch, Growth) or len(plan_of(self.batch)) > 1

    @property
    def first_batch(self) -> int:
        """The batch of the first step."""
        return plan_of(self.batch)[0][1]

    @property
    def largest_batch(self) -> int:
        """The largest batch that a step may have."""
        if isinstance(self.batch, Growth):
            return self.batch.to
        return max(batch for _, batch in plan_of(self.batch))

    @property
    def known_batches(self) -> tuple[int, ...]:
        """The batches that steps may have, in ascending order."""
        if isinstance(self.batch, Growth):
            return tuple(sizes(self.batch.first, self.batch.to))
        return tuple(sorted({batch for _, batch in plan_of(self.batch)}))

    @property
    def own_batch(self) -> int:
        """The batch that steps, schedule and the optimizer's settings belong to."""
        return self.tuned_at or self.first_batch

    @property
    def stages(self) -> BatchStages:
        """The stages of the batch, as far as they are known before training."""
        return BatchStages(self.sample_order().samples, plan_of(self.batch))

    @property
    def tuned_samples(self) -> TunedSamples:
        """What samples of larger batches are worth."""
        return TunedSamples(self.tuned_at, self.critical_batch)

    @property
    def total_steps(self) -> int:
        """Number of optimizer steps of this training."""
        if self.grows:
            return self.steps_in(self.stages)
        if self.tuned_at is None:
            return self.tuned_steps
        steps = self.steps_with_equal_samples(self.first_batch)
        if self.critical_batch is None:
            return steps
        return math.ceil(
            steps * samples_times(self.first_batch, self.tuned_at, self.critical_batch)
        )

    @property
    def steps_in_plans(self) -> int:
        """Number of steps for a plan, which has one batch: the largest one."""
        return self.steps_with_equal_samples(self.largest_batch) if self.grows else self.total_steps

    def steps_in(self, stages: BatchStages) -> int:
        """Return the number of steps in stages of a growing batch."""
        own = BatchStages.constant(self.own_batch, stages.epoch_samples)
        samples = own.position(self.tuned_steps)
        return stages.step_from(self.tuned_samples.position(stages, samples))

    @property
    def tuned_steps(self) -> int:
        """The same with the batch that it was tuned at."""
        if self.steps is not None:
            return self.steps
        if not self.has_index:
            return -(-self.samples // self.own_batch)
        assert self.epochs is not None
        return self.epochs * -(-self.sample_order().samples // self.own_batch)

    def steps_with_equal_samples(self, batch: int) -> int:
        """Return the steps with this batch that see the samples of the tuned ones; the last batch
        of an epoch may be smaller."""
        epoch = self.sample_order().samples
        samples = BatchStages.constant(self.own_batch, epoch).position(self.tuned_steps)
        return BatchStages.constant(batch, epoch).step_from(samples)
