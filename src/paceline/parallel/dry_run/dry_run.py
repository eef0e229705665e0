"""Dry run of a training on any cluster: each worker's memory and transfers in a step.

The user's model and the engine itself run for one worker after another, on fake tensors and with
fake peers. So the results are those of the real engine.
"""

import dataclasses
import gc
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from paceline.parallel import forward_trace
from paceline.parallel.dry_run.dry_step import DryWorker
from paceline.parallel.dry_run.fake_workers import (
    FakeGroups,
    pretending,
    replaced,
    what_is_lacking,
)
from paceline.parallel.forward_trace import Trace
from paceline.specs import DryRun, Layout, PacelineError, Placement, RankDryRun
from paceline.user.training import Training

Advance = Callable[[float], None]
"""Callback with the completed fraction of the work."""

_SAMPLES = 3
"""Number of dataset samples that stand for all."""


def dry_run(
    training: Training,
    layout: Layout,
    *,
    devices_per_node: int,
    advance: Advance = lambda done: None,
) -> DryRun:
    """Take one step on the first worker of every pipeline stage."""
    begin = time.perf_counter()
    # A compiled model has the same memory and transfers, and compiling takes long.
    layout = layout.model_copy(update={"compile": False})
    training = dataclasses.replace(training, data=Few(training))
    ranks = range(0, layout.workers, layout.workers // layout.pipeline)
    reports: list[RankDryRun] = []
    seen: list[Trace] = []
    facts: dict[str, int] = {}
    # One block for all ranks: the user's code may keep a tensor for the next one.
    with warnings.catch_warnings(), pretending(layout), explained():
        warnings.simplefilter("ignore")  # a real run shows these warnings too
        for rank in ranks:
            node, local_rank = divmod(rank, devices_per_node)
            groups = FakeGroups(
                Placement(rank, layout.workers, local_rank, devices_per_node, f"node {node}")
            )
            try:
                with replaced(forward_trace, "trace", _remembering(forward_trace.trace, seen)):
                    dry_worker = DryWorker(training, layout, groups)
                work = _Work(dry_worker.micro_batches_run, len(reports), len(ranks), advance)
                reports.append(dry_worker.measure(work.part_done))
                facts = _facts(dry_worker)
                del dry_worker, work
            finally:
                groups.leave()
                gc.collect()
    return DryRun(
        layout=layout,
        nodes=layout.workers // devices_per_node,
        devices_per_node=devices_per_node,
        batch=training.largest_batch,
        **facts,
        ranks=tuple(reports),
        seconds=time.perf_counter() - begin,
    )


def _facts(dry_worker: DryWorker) -> dict[str, int]:
    """Return the facts that are the same on all workers."""
    return {
        "parameters": dry_worker.size,
        "parameter_bytes": dry_worker.size_bytes,
        "micro_batches": len(dry_worker.parts),
        "micro_batch_samples": max(part.rows for part in dry_worker.parts),
        "micro_batches_run": dry_worker.micro_batches_run,
    }


def _remembering(
    look: Callable[[nn.Module, Callable[[], Any]], Trace], seen: list[Trace]
) -> Callable[[nn.Module, Callable[[], Any]], Trace]:
    """Wrap the tracer to reuse the traces of an earlier worker, because all are equal."""
    earlier = iter(list(seen))

    def look_once(model: nn.Module, run: Callable[[], Any]) -> Trace:
        known = next(earlier, None)
        if known is None:
            known = look(model, run)
            seen.append(known)
        return known

    return look_once


class _Work:
    """Progress; assumes that all workers, and all micro-batches of one, take equally long."""

    def __init__(self, parts: int, workers_done: int, workers: int, advance: Advance) -> None:
        # Arranging the model takes about as long as a micro-batch.
        self._each = 1 / (workers * (parts + 1))
        self._done = workers_done / workers
        self._advance = advance
        self.part_done()

    def part_done(self) -> None:
        self._done += self._each
        self._advance(min(1.0, self._done))


class Few(Dataset[Any]):
    """A dataset that reads only a few samples and repeats them."""

    def __init__(self, training: Training) -> None:
        self._length = training.samples
        self._samples = training.first(min(_SAMPLES, self._length))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]


@contextmanager
def explained() -> Iterator[None]:
    """Raise a clear error if the user's code needs values, which fake tensors do not have."""
    try:
        yield
    except Exception as error:
        lacking = what_is_lacking(error)
        if lacking is None:
            raise
        raise PacelineError(
            f"{users_line(error)} {lacking}, but tensors of a dry run have no values",
            fix="avoid that (torch.where instead of if, a mask instead of indices), or try this"
            " layout on real workers: paceline run TRAIN -n 2",
        ) from error


def users_line(error: BaseException) -> str:
    """Return the innermost line that is in neither torch nor Paceline, or else one of a module."""
    torchs, ours = str(Path(torch.__file__).parent), str(Path(__file__).parents[2])
    frames = traceback.extract_tb(error.__traceback__)
    users = [
        frame
        for frame in frames
        if not frame.filename.startswith((torchs, ours, "<"))
        and "/lib/python3" not in frame.filename
    ]
    modules = [frame for frame in frames if frame.filename.startswith(f"{torchs}/nn/")]
    frame = (users or modules or frames)[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}: `{frame.line}`"
