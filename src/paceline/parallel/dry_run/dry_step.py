"""One step of one worker on fake tensors, with its memory and its transfers."""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from paceline.comm.dtensor import local_tensor
from paceline.data.batches import Batches
from paceline.data.collation.nested import tensors_of
from paceline.data.loader import Batch, collated
from paceline.data.order import Sequential
from paceline.parallel.data_speeds import speeds_of_data_workers
from paceline.parallel.dry_run import memory_footprint, torch_stand_ins
from paceline.parallel.dry_run.fake_workers import AnyNumber, FakeGroups, without_memory
from paceline.parallel.dry_run.memory_footprint import Footprint
from paceline.parallel.dry_run.operator_watch import Watching
from paceline.parallel.dry_run.transfers import TransferRecorder, listed
from paceline.parallel.parallelize import parallelize
from paceline.parallel.step.loss_scaling import LossScaling
from paceline.parallel.step.loss_weights import Weights
from paceline.parallel.step.whole_batch import WholeBatch, gathering
from paceline.specs import HeldParameters, Layout, Memory, RankDryRun, Transfer
from paceline.user.parameters import Parameters
from paceline.user.training import Training

_LARGEST = 8
"""Maximum number of parameter kinds shown."""


@dataclass(frozen=True)
class _Run:
    """Micro-batches to run, and the factor that their transfers count with.

    A step with many micro-batches is extrapolated from runs with few: each adds the same amount.
    """

    parts: list[Batch]
    times: int


class DryWorker:
    """A worker that builds its model as in a real run and takes its step without the others."""

    def __init__(self, training: Training, layout: Layout, groups: FakeGroups) -> None:
        placement = groups.placement
        self._training = training
        self._layout = layout
        self._groups = groups
        self._batches = batches = Batches(
            order=Sequential(training.samples),
            batch=training.largest_batch,
            steps=training.total_steps,
            workers=layout.data_workers,
            rank=layout.data_rank(placement.rank),
            speeds=speeds_of_data_workers(placement, layout),
        )
        share = batches.counts(0)
        largest = batches.largest_local_batch(share.global_samples)
        self._models: list[nn.Module] = []
        self.size_bytes = 0
        """Bytes of the whole model's parameters."""
        self._parallel_model = parallelize(
            dataclasses.replace(training, model=self._build),
            layout,
            groups,
            largest_local_batch=largest,
            trial=False,
        )
        self._optimizer = training.optimizer(Parameters(self._parallel_model.named_parameters()))
        rows = max(1, share.samples)
        batch = dataclasses.replace(
            collated(training.first(rows), groups.device, training.form),
            samples=share.samples,
            global_samples=share.global_samples,
            padding=rows - share.samples,
        )
        self.parts: Sequence[Batch] = self._parallel_model.parts(batch, largest)
        """The micro-batches of a step."""
        self._runs = _runs(list(self.parts), layout)
        self._buckets: list[torch.Tensor] = []

    @property
    def size(self) -> int:
        """Number of parameters of the whole model."""
        return self._parallel_model.size

    @property
    def micro_batches_run(self) -> int:
        """Number of micro-batches that run, to extrapolate to all."""
        return sum(len(run.parts) for run in self._runs)

    def measure(self, advance: Callable[[], None]) -> RankDryRun:
        """Take the step and return its memory and transfers; call `advance` per micro-batch."""
        layout = self._layout
        self._set_up(advance)
        sent: Counter[Transfer] = Counter()
        seen: list[tuple[int, Footprint]] = []
        placement = self._groups.placement
        for run in self._runs:
            memory = Footprint(partial(self._claim, run.parts))
            recorder = TransferRecorder(layout, placement.rank, placement.local_workers)
            with memory.following_sizes(), Watching(memory, recorder):
                memory.look()
                self._learn(run.parts, advance)
                memory.look()
            for transfer, count in recorder.counts.items():
                sent[transfer] += run.times * count
            seen.append((run.times, memory))
        with AnyNumber():  # type: ignore[no-untyped-call]
            self._optimizer.step()
        return RankDryRun(
            rank=placement.rank,
            node=placement.rank // placement.local_workers,
            **layout.position(placement.rank)._asdict(),
            parameters=sum(
                local_tensor(each).numel() for each in self._parallel_model.parameters()
            ),
            memory=self._memory(seen),
            largest=self._largest(),
            transfers=listed(sent),
        )

    def _build(self) -> nn.Module:
        model = without_memory(self._training.model())
        self.size_bytes = sum(each.nbytes for each in model.parameters())
        self._models.append(model)
        return model

    def _set_up(self, advance: Callable[[], None]) -> None:
        """Do the work that only the first step of a training does."""
        layout = self._layout
        if layout.replicas > 1 and layout.shards == layout.pipeline == 1:
            # DDP rebuilds its gradient buckets once, after the first step.
            self._learn([self.parts[-1]], advance)
            self._buckets = torch_stand_ins.settled_buckets()
        if layout.pipeline > 1 and layout.tensor > 1:
            # Stages find the output shapes of other stages' blocks, as slices.
            with torch.no_grad():
                self._parallel_model.measure(self.parts[: layout.pipeline], [self._training.loss])

    def _learn(self, parts: list[Batch], advance: Callable[[], None]) -> None:
        """Run all parts of a step that use memory or communicate, as the trainer does."""
        for parameter in self._parallel_model.parameters():
            parameter.grad = None
        weights = Weights(parts, self._training.weight, self._layout, self._groups)
        scaling = LossScaling(self._layout, self._groups)

        def minimize(loss: torch.Tensor, number: int) -> torch.Tensor:
            share = weights.each[number] * self._layout.data_workers / weights.total()
            return scaling.scaled(loss * share)

        group = self._parallel_model.data_group
        with gathering(WholeBatch(parts[0], self._batches, len(self.parts), group)):
            self._parallel_model.learn(_Watched(parts, advance), minimize)
        scaling.unscale(self._optimizer)
        if self._training.clip is not None:
            self._parallel_model.squared_norm()

    def _claim(self, parts: list[Batch], memory: Footprint) -> None:
        """Attribute all memory that is not activations."""
        memory.claim(
            memory_footprint.INPUTS, tensors_of([(part.inputs, part.target) for part in parts])
        )
        for model in self._models:
            memory.claim(memory_footprint.PARAMETERS, map(local_tensor, model.parameters()))
            memory.claim(memory_footprint.PARAMETERS, model.buffers())
            memory.claim(
                memory_footprint.COMMUNICATION, torch_stand_ins.communicated_weights(model)
            )
            memory.claim(memory_footprint.GRADIENTS, torch_stand_ins.whole_gradients(model))
        gradients = (each.grad for each in self._parallel_model.parameters())
        memory.claim(
            memory_footprint.GRADIENTS,
            (local_tensor(each) for each in gradients if each is not None),
        )
        memory.claim(memory_footprint.COMMUNICATION, self._buckets)

    def _memory(self, seen: list[tuple[int, Footprint]]) -> Memory:
        def most(of: Callable[[Footprint], int]) -> int:
            # Sequential micro-batches need no more memory than two; a pipeline has several in
            # flight.
            if self._layout.pipeline == 1:
                return max(of(each) for _, each in seen)
            return sum(times * of(each) for times, each in seen)

        states = [*tensors_of(list(self._optimizer.state.values()))]
        if self._training.average is not None:
            states += [each for each in self._parallel_model.parameters() if each.requires_grad]
        optimizer = sum(local_tensor(each).nbytes for each in states)
        return Memory(
            parameters=sum(local_tensor(each).nbytes for each in self._parallel_model.parameters()),
            gradients=most(lambda each: each.most[memory_footprint.GRADIENTS]),
            optimizer=optimizer,
            activations=most(lambda each: each.activations),
            communication=most(lambda each: each.most[memory_footprint.COMMUNICATION]),
            peak=most(lambda each: each.peak) + optimizer,
        )

    def _largest(self) -> tuple[HeldParameters, ...]:
        kinds: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for model in self._models:
            for name, parameter in model.named_parameters():
                kind = re.sub(r"(?<=\.)\d+(?=\.)", "*", name)
                kinds[kind, tuple(local_tensor(parameter).shape)] += 1
        ordered = sorted(kinds.items(), key=lambda kind: -torch.Size(kind[0][1]).numel())
        return tuple(
            HeldParameters(name=name, shape=shape, count=count)
            for (name, shape), count in ordered[:_LARGEST]
        )


class _Watched(list[Batch]):
    """Micro-batches that report each time one is done."""

    def __init__(self, parts: list[Batch], advance: Callable[[], None]) -> None:
        super().__init__(parts)
        self._advance = advance

    def __iter__(self) -> Iterator[Batch]:
        for part in super().__iter__():
            yield part
            self._advance()


def _runs(parts: list[Batch], layout: Layout) -> list[_Run]:
    """Choose the runs that determine all micro-batches: fewer, if there are many."""
    few = _few_of_pipeline(parts, layout) if layout.pipeline > 1 else _few(parts)
    return few if sum(len(run.parts) for run in few) < len(parts) else [_Run(parts, 1)]


def _few_of_pipeline(parts: list[Batch], layout: Layout) -> list[_Run]:
    # Once all stages are busy, each further micro-batch adds the same amount. With two stages per
    # worker, each further round of one micro-batch per worker does.
    workers, one_stage = layout.pipeline, layout.stages == layout.pipeline
    few, step = (workers + 1, 1) if one_stage else (3 * workers, workers)
    steps = (len(parts) - few) // step
    return [_Run(parts[:few], 1 - steps), _Run(parts[: few + step], steps)]


def _few(parts: list[Batch]) -> list[_Run]:
    *first, last = parts
    kinds = {part.rows: part for part in first}
    times = Counter(part.rows for part in first)
    largest = max(kinds, default=0)
    return [
        # The last alone, and each kind of the others before it: the difference is due to the other.
        _Run([last], 1 - len(first)),
        *(_Run([part, last], times[rows]) for rows, part in kinds.items()),
        # Memory peaks in the second of two micro-batches of the largest size.
        *([_Run([kinds[largest]] * 2, 0)] if largest > last.rows and times[largest] > 1 else []),
    ]
