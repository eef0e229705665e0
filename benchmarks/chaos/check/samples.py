"""Every sample counts exactly once in each epoch, by the ledger's files."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.chaos.check.evidence import Evidence, Line, Violation

RULE = "each sample once"


@dataclass
class Step:
    """A step that counts."""

    parts: int
    """Into which its batch was divided."""
    lines: list[Line] = field(default_factory=list)
    """What the ledger says of those that were taken."""


@dataclass(frozen=True)
class Tally:
    """The samples of a whole run."""

    counted: int
    wrong: int
    """Those that were lost, or counted more than once."""


def check(evidence: Evidence) -> Iterator[Violation]:
    """The steps that count: all there, each whole, no sample twice in an epoch or left out."""
    for generation, parts in evidence.ledger.items():
        heads = {(part[0]["resumed"], part[0]["parts"], part[0]["samples"]) for part in parts}
        if len(heads) > 1:
            yield Violation(RULE, f"workers of generation {generation} began apart: {heads}")
        resumed, _, _ = min(heads)
        for line in (line for part in parts for line in part[1:] if line["step"] <= resumed):
            yield Violation(
                RULE,
                f"generation {generation} took step {line['step']} again, after it had begun"
                f" with {resumed} steps",
            )
    yield from _whole(_counting(evidence), evidence.run["steps"])
    yield from _once(evidence)


def tally(evidence: Evidence) -> Tally:
    """How many samples counted, and how many were lost or counted more than once."""
    epochs, samples, last = _epochs(evidence)
    return Tally(
        counted=sum(seen.total() for seen in epochs.values()),
        wrong=sum(
            seen.total() - len(seen) + (samples - len(seen) if epoch != last else 0)
            for epoch, seen in epochs.items()
        ),
    )


def _counting(evidence: Evidence) -> dict[int, Step]:
    """The steps that no later generation took back."""
    found: dict[int, Step] = {}
    for parts in evidence.ledger.values():
        resumed, divided = min((part[0]["resumed"], part[0]["parts"]) for part in parts)
        for step in [step for step in found if step > resumed]:
            del found[step]
        for line in (line for part in parts for line in part[1:]):
            found.setdefault(line["step"], Step(divided)).lines.append(line)
    return found


def _whole(counting: dict[int, Step], steps: int) -> Iterator[Violation]:
    missing = [step for step in range(1, steps + 1) if step not in counting]
    if missing:
        yield Violation(RULE, f"{len(missing)} steps were not taken, the first {missing[0]}")
    beyond = [step for step in counting if step > steps]
    if beyond:
        yield Violation(RULE, f"{len(beyond)} steps were taken beyond the last, {steps}")
    for number, step in sorted(counting.items()):
        if len(step.lines) != step.parts:
            yield Violation(RULE, f"step {number} has {len(step.lines)} of {step.parts} parts")


def _epochs(evidence: Evidence) -> tuple[dict[int, Counter[int]], int, int]:
    """How often each sample was seen in each epoch; how many there are; the epoch within which the
    training may end."""
    counting, steps = _counting(evidence), evidence.run["steps"]
    epochs: dict[int, Counter[int]] = {}
    for step in counting.values():
        for line in step.lines:
            epochs.setdefault(line["epoch"], Counter()).update(line["ids"])
    samples = [parts[0][0]["samples"] for parts in evidence.ledger.values()]
    last = counting[steps].lines[0]["epoch"] if steps in counting else -1
    return epochs, samples[-1] if samples else 0, last


def _once(evidence: Evidence) -> Iterator[Violation]:
    epochs, samples, last = _epochs(evidence)
    for epoch, seen in sorted(epochs.items()):
        twice = [sample for sample, times in seen.items() if times > 1]
        if twice:
            yield Violation(RULE, f"epoch {epoch}: {len(twice)} samples were seen more than once")
        if set(seen) - set(range(samples)):
            yield Violation(RULE, f"epoch {epoch}: samples that there are not")
        if len(seen) < samples and epoch != last:
            yield Violation(RULE, f"epoch {epoch}: {samples - len(seen)} samples were not seen")
