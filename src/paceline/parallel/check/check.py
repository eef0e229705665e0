"""The check of a training: compare the whole with the divided, in one process."""

import gc
import math
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import psutil
import torch
from torch import nn

from paceline.data.batches import Batches
from paceline.parallel.check.comparison import compared
from paceline.parallel.check.few_samples import FewSamples
from paceline.parallel.check.subject import Subject
from paceline.parallel.parallel_model import evaluating
from paceline.parallel.step.whole_batch import gather_calls
from paceline.specs import Layout
from paceline.specs.finding import Finding
from paceline.specs.units import count, first_few, size
from paceline.user.buffer_rules import rule_of
from paceline.user.mistakes import users_code
from paceline.user.training import Training

COPIES = 4
"""Weights, gradients and what forward and backward need beside them, in weights."""


def check(
    training: Training,
    layout: Layout,
    device: torch.device,
    *,
    most_bytes: int | None = None,
    quick: bool = False,
) -> Iterator[Finding]:
    """Yield what works, differs or fails when this training is divided over workers.

    Raise the user's own errors as `TrainingMistake`. Weights of more than `most_bytes`, by default
    of what fits in the free memory, are not created: only shapes and types are checked then. With
    `quick`, such weights are created, as a worker does in any case, but not checked.
    """
    if training.data is None:
        yield Finding("data", "note", "made by the training itself, so there is nothing to compare")
        return
    with users_code("loading the first samples", "check the dataset's __getitem__"):
        few = FewSamples.of(training, device)
        few.whole()
    yield Finding("data", "ok", f"{count(len(few.samples), 'sample')} loaded and collated")
    yield _divided(training, layout)
    most = psutil.virtual_memory().available // COPIES if most_bytes is None else most_bytes
    # The first use of the meta device takes a second or two.
    if not quick and (weight_bytes := _weight_bytes(_without_memory(training))) > most:
        yield from _without_values(training, weight_bytes)
        return
    torch.manual_seed(training.seed)
    with users_code("building the model", "check the function given as model="):
        model = training.model()
    if quick and (weight_bytes := _weight_bytes(model)) > most:
        text = f"not compared before a run: the weights take {size(weight_bytes)}"
        yield Finding("loss", "note", text, "`paceline check TRAIN` compares it")
        return
    subject = Subject(training, model.to(device))
    for name, phase in (training.phases or {}).items():
        for finding in _values(Subject(training, model, phase), few):
            yield replace(finding, text=f"{name}: {finding.text}")
    if not training.phases:
        yield from _values(subject, few)
    if layers := list(subject.batch_norms):
        yield _batch_norm(layers, layout)


def _divided(training: Training, layout: Layout) -> Finding:
    """Refuse a batch that cannot be divided."""
    workers = layout.data_workers
    Batches(training.sample_order(), training.stages, training.total_steps, workers, rank=0)
    samples = f"{training.first_batch} samples per step"
    if training.grows:
        samples += f" at first and up to {training.largest_batch} later"
    return Finding("batch", "ok", f"{samples}, divided over {count(workers, 'worker')}")


def _values(subject: Subject, few: FewSamples) -> Iterator[Finding]:
    whole = few.whole()
    subject.model.zero_grad(set_to_none=True)
    loss = subject.loss(whole)
    first = loss.item()
    if not math.isfinite(first):
        yield Finding(
            "model",
            "bad",
            f"the first {len(few.samples)} samples have a loss of {first}",
            "look for a division by zero, a logarithm of zero or values that are not finite",
        )
        return
    subject.add_gradient(loss)
    unused = subject.unused()
    yield Finding("model", "ok", f"the first {len(few.samples)} samples have a loss of {first:.4g}")
    if not subject.agree(first, subject.value(whole)):
        yield Finding(
            "state",
            "bad",
            "the model keeps a state between steps: the same batch, weights and random numbers"
            " give another loss the second time; workers and a resumed run would not share it",
            "keep that state in a buffer (register_buffer), or reset it in forward",
        )
        return
    draws = not subject.agree(first, subject.value(whole, seed=1))
    with evaluating(subject.model) if draws else nullcontext():
        if reason := _incomparable(subject, few, draws=draws):
            yield Finding("loss", "note", f"not compared with a divided batch: {reason}")
        else:
            yield from compared(subject, few)
    yield _random(subject, draws=draws)
    yield _unused(unused)
    if len(few.samples) > 1:
        yield _buffers(subject, few)


def _incomparable(subject: Subject, few: FewSamples, *, draws: bool) -> str | None:
    """Return why a divided batch has another loss in any case, or None."""
    if len(few.samples) < 2:
        return "the batch has one sample"
    if any(layer.running_mean is None for layer in subject.batch_norms.values()):
        return "batch normalization without running statistics"
    whole, gathered = few.whole(), gather_calls()
    subject.value(whole)
    if gather_calls() > gathered:
        return "it combines the rows of all workers with paceline.gather"
    if draws and not subject.agree(subject.value(whole), subject.value(whole, seed=1)):
        return "forward draws random numbers, also in evaluation mode"
    return None


def _random(subject: Subject, *, draws: bool) -> Finding:
    same = "`--sync canonical` draws the same on any number of workers"
    if draws:
        return Finding(
            "random",
            "note",
            "forward draws random numbers when it trains: each worker draws others, so that runs"
            " on one and on several workers are equal only statistically",
            same,
        )
    if subject.has_dropout:
        text = f"dropout, which was off here: each worker draws its own; {same}"
        return Finding("random", "ok", text)
    return Finding("random", "ok", "forward draws no random numbers")


def _unused(unused: list[str]) -> Finding:
    if unused:
        return Finding(
            "unused",
            "note",
            f"the loss of these samples does not depend on {first_few(unused)}",
            "if no step uses them, call requires_grad_(False) on them",
        )
    return Finding("unused", "ok", "every trainable parameter has a gradient")


def _buffers(subject: Subject, few: FewSamples) -> Finding:
    """Compare the buffers after the whole batch and after each part, as each worker has them."""
    changed = [
        subject.changed_buffers(batch) for batch in (few.whole(), *few.parts(few.divisions[0]))
    ]
    names = sorted(set().union(*changed))
    unequal = [
        name
        for name in names
        if not all(name in each and torch.equal(each[name], changed[0][name]) for each in changed)
    ]
    differ = [name for name in unequal if rule_of(name, subject.training.buffers) is None]
    if differ:
        return Finding(
            "buffers",
            "bad",
            f"forward changes {first_few(differ)} by the samples that it sees: each worker would"
            " get other values",
            f'say how workers agree: Training(buffers={{"{differ[0]}": "average"}}), "sum" or'
            ' "worker0"',
        )
    how = "settled by Training(buffers=…)" if unequal else "on every worker alike"
    text = f"forward changes {first_few(names)}, {how}" if names else "unchanged"
    return Finding("buffers", "ok", text)


def _batch_norm(layers: list[str], layout: Layout) -> Finding:
    if layout.batch_norm is not None:
        return Finding("batch norm", "ok", f"{layout.batch_norm} in {first_few(layers)}")
    return Finding(
        "batch norm",
        "note",
        f"{first_few(layers)} normalize over the batch; compared here with fixed statistics",
        "give run or submit `--batch-norm synchronized` (as on one device) or `--batch-norm local`"
        " (each worker normalizes its own samples)",
    )


def _weight_bytes(model: nn.Module | None) -> int:
    return sum(each.nbytes for each in model.parameters()) if model else 0


def _without_memory(training: Training) -> nn.Module | None:
    """Build the model without values; None if it needs some."""
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            return training.model()
    except Exception:
        return None
    finally:
        gc.collect()


def _without_values(training: Training, weight_bytes: int) -> Iterator[Finding]:
    """Check shapes and types on tensors without values."""
    reason = f"the weights take {size(weight_bytes)}: checked without values"
    meta = torch.device("meta")
    model = _without_memory(training)
    assert model is not None
    try:
        with meta:
            phases = list((training.phases or {}).values())
            subject = Subject(training, model.to(meta), phases[0] if phases else None)
            subject.add_gradient(subject.loss(FewSamples.of(training, meta).whole()))
    except Exception as error:
        said = (str(error).splitlines() or [""])[0]
        yield Finding("model", "note", f"{reason}, but it needs some: {said}")
        return
    yield Finding("model", "ok", f"{reason}, forward, loss and backward accept the samples")
    yield _unused(subject.unused())
    yield Finding(
        "loss", "note", "not compared with a divided batch, nor buffers: this needs values"
    )
