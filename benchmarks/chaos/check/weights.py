"""What was learnt is what an undisturbed run learns."""

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from benchmarks.chaos.check.evidence import Evidence, Violation

RULE = "same result"
BITS_RULE = "bitwise identical"
TOLERANCE = 1e-3
"""Of the norm of the weights: sums over other numbers of workers are rounded otherwise."""
LOSS_TOLERANCE = 0.5
"""Of the loss, where the number of workers is a part of how they learn."""
_LOSSES = 20


def check(evidence: Evidence, undisturbed: Path) -> Iterator[Violation]:
    """Weights where they must be equal, to the bit or but for rounding; in any case the loss of
    the last steps."""
    if evidence.run["exact"]:
        ours, theirs = newest_weights(evidence.folder), newest_weights(undisturbed)
        if ours.keys() != theirs.keys():
            yield Violation(RULE, f"the last checkpoint has {sorted(ours)}, not {sorted(theirs)}")
            return
        apart = math.sqrt(sum(float(((ours[name] - theirs[name]) ** 2).sum()) for name in ours))
        norm = math.sqrt(sum(float((theirs[name] ** 2).sum()) for name in ours))
        if not apart <= TOLERANCE * norm:
            yield Violation(RULE, f"weights are {apart / norm:.3g} of their norm apart")
        if evidence.run["same_bits"]:
            yield from _same_bits(ours, theirs)
    ours_loss, theirs_loss = last_loss(evidence), last_loss(Evidence(undisturbed))
    if not abs(ours_loss - theirs_loss) <= LOSS_TOLERANCE * theirs_loss:
        yield Violation(RULE, f"the loss is {ours_loss:.6g}, undisturbed {theirs_loss:.6g}")


def _same_bits(
    ours: "dict[str, np.ndarray]", theirs: "dict[str, np.ndarray]"
) -> Iterator[Violation]:
    for name, weight in ours.items():
        differ = int((weight.view(np.uint64) != theirs[name].view(np.uint64)).sum())
        if differ:
            yield Violation(BITS_RULE, f"{name}: {differ} of {weight.size} weights differ")


def newest_weights(folder: Path) -> dict[str, "np.ndarray"]:
    """The weights of the last checkpoint, put together from its files."""
    checkpoints = sorted((folder / "checkpoints").glob("*/step-*"))
    if not checkpoints:
        return {}
    newest = checkpoints[-1]
    pieces: dict[str, list[tuple[tuple[int, ...], np.ndarray]]] = defaultdict(list)
    for path in sorted(newest.glob("*.safetensors")):
        for key, piece in load_file(path).items():
            name, _, offset = key.removesuffix("]").partition("[")
            begin = tuple(map(int, offset.split(","))) if offset else (0,) * piece.ndim
            pieces[name].append((begin, piece))
    return {name: _whole(its) for name, its in pieces.items() if name.startswith("model/")}


def _whole(pieces: "list[tuple[tuple[int, ...], np.ndarray]]") -> "np.ndarray":
    """Put a tensor together from its pieces, without the reader under test."""
    ends = [tuple(map(sum, zip(begin, piece.shape, strict=True))) for begin, piece in pieces]
    whole = np.full(tuple(map(max, zip(*ends, strict=True))), np.nan)
    for (begin, piece), end in zip(pieces, ends, strict=True):
        whole[tuple(map(slice, begin, end))] = piece
    return whole


def last_loss(evidence: Evidence) -> float:
    """The mean of the last steps' losses, as the run told them."""
    losses: dict[int, float] = {}
    for event in sorted(evidence.events_of("steps"), key=lambda event: event["generation"]):
        losses |= {event["first"] + number: loss for number, loss in enumerate(event["loss"])}
    last = [losses[step] for step in sorted(losses)[-_LOSSES:]]
    return sum(last) / len(last) if last else math.nan
