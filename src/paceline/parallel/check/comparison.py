"""Comparison of a batch as a whole with the weighted mean over its parts, as workers compute it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.data.loader import Batch
from paceline.parallel.check.few_samples import FewSamples
from paceline.parallel.check.subject import Subject
from paceline.parallel.step.loss_weights import weight_of
from paceline.specs.finding import Finding
from paceline.user.mistakes import users_code


@dataclass(frozen=True)
class _Compared:
    """The losses and gradients of a batch and of its parts."""

    sizes: tuple[int, ...]
    whole: float
    parts: tuple[float, ...]
    mean: float
    """Weighted mean of the parts' losses."""
    apart: float
    """Difference of the gradients, relative to the whole batch's."""
    parameter: str
    """The parameter with the largest difference."""


def compared(subject: Subject, few: FewSamples) -> Iterator[Finding]:
    """Yield findings about the loss and the gradient of divided batches."""
    found = [_compare(subject, few, sizes) for sizes in few.divisions]
    ways = " and as ".join(_sum_of(each.sizes) for each in found)
    wrong = [each for each in found if not subject.agree(each.whole, each.mean)]
    if any(math.isfinite(each.whole) and not math.isfinite(each.mean) for each in wrong):
        yield Finding(
            "loss",
            "note",
            f"{len(few.samples)} samples have a loss of {wrong[0].whole:.4g} together, but a part"
            f" of {min(wrong[0].sizes)} has none that is finite: nothing was compared",
            "return a finite loss for a batch without elements that count",
        )
        return
    if wrong:
        yield _loss_finding(subject, few, wrong[0])
        return
    yield Finding("loss", "ok", f"the same for {len(few.samples)} samples together as {ways}")
    worst = max(found, key=lambda each: each.apart)
    if worst.apart > subject.tolerance:
        yield Finding(
            "gradient",
            "bad",
            f"the loss of {len(few.samples)} samples is the mean over their parts, but its gradient"
            f" is not: {worst.parameter} differs by {100 * worst.apart:.3g} %",
            "let forward compute each sample alone, or combine samples with paceline.gather",
        )
        return
    yield Finding("gradient", "ok", f"the same for {len(few.samples)} samples together as {ways}")


def _compare(subject: Subject, few: FewSamples, sizes: tuple[int, ...]) -> _Compared:
    parts = few.parts(sizes)
    weights = [_weight(subject, part) for part in parts]
    subject.model.zero_grad(set_to_none=True)
    whole = subject.loss(few.whole())
    subject.add_gradient(whole)
    norms = subject.gradient_norms()
    losses = []
    for part, weight in zip(parts, weights, strict=True):
        loss = subject.loss(part)
        # The gradients cancel out: this takes the memory of one gradient, not of three.
        subject.add_gradient(loss, -weight / sum(weights))
        losses.append(loss.item())
    left = subject.gradient_norms()
    # Relative to the whole gradient: a single parameter's may be zero but for rounding.
    norm = math.hypot(*norms.values()) or 1.0
    worst = max(left, key=lambda name: left[name])
    mean = sum(loss * weight for loss, weight in zip(losses, weights, strict=True)) / sum(weights)
    apart = math.hypot(*left.values()) / norm
    return _Compared(sizes, whole.item(), tuple(losses), mean, apart, worst)


def _weight(subject: Subject, part: Batch) -> float:
    with users_code("Training(weight=…)", "return a scalar tensor from weight(target)"):
        return float(weight_of(part, subject.training.weight))


def _loss_finding(subject: Subject, few: FewSamples, found: _Compared) -> Finding:
    """Explain a loss that is not the mean over the parts of a batch."""
    count = len(few.samples)
    numbers = (
        f"{count} samples have a loss of {found.whole:.4g} together, but the mean over their parts"
        f" ({_sum_of(found.sizes)}) is {found.mean:.4g}"
    )
    weighted = subject.training.weight is not None
    if subject.agree(found.whole, sum(found.parts)):
        return Finding(
            "loss",
            "bad",
            f"the loss is a sum over the samples: {numbers}",
            'return their mean, such as loss(…, reduction="mean"), and give weight= if it is a'
            " mean over other elements than samples",
        )
    if min(found.parts) <= found.whole <= max(found.parts):
        return Finding(
            "loss",
            "bad",
            f"the loss is not a mean over {'what weight= counts' if weighted else 'samples'}:"
            f" {numbers}",
            "give weight=lambda target: … with the number of elements, such as tokens, that the"
            " loss is a mean over",
        )
    return Finding(
        "loss",
        "bad",
        f"the loss of a sample depends on the others in its batch: {numbers}",
        "let the loss see the whole batch with paceline.gather, or compute it for each sample",
    )


def _sum_of(sizes: tuple[int, ...]) -> str:
    return " + ".join(str(size) for size in sizes)
