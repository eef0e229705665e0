"""Every sample counts exactly once in each epoch, by the ledger's files."""

from collections import Counter
from collections.abc import Iterator

from benchmarks.chaos.check.evidence import Evidence, Line, Violation

RULE = "each sample once"


def check(evidence: Evidence) -> Iterator[Violation]:
    """The steps that count: all there, each whole, no sample twice in an epoch or left out."""
    counted: dict[int, list[Line]] = {}
    parts_of: dict[int, int] = {}
    samples = 0
    for generation, parts in evidence.ledger.items():
        heads = {(part[0]["resumed"], part[0]["parts"], part[0]["samples"]) for part in parts}
        if len(heads) > 1:
            yield Violation(RULE, f"workers of generation {generation} began apart: {heads}")
        resumed, divided, samples = min(heads)
        for step in [step for step in counted if step > resumed]:
            del counted[step]
        for line in (line for part in parts for line in part[1:]):
            if line["step"] <= resumed:
                yield Violation(
                    RULE,
                    f"generation {generation} took step {line['step']} again, after it had begun"
                    f" with {resumed} steps",
                )
            counted.setdefault(line["step"], []).append(line)
            parts_of[line["step"]] = divided
    yield from _whole(counted, parts_of, evidence.run["steps"])
    yield from _once(counted, samples, evidence.run["steps"])


def _whole(
    counted: dict[int, list[Line]], parts_of: dict[int, int], steps: int
) -> Iterator[Violation]:
    missing = [step for step in range(1, steps + 1) if step not in counted]
    if missing:
        yield Violation(RULE, f"{len(missing)} steps were not taken, the first {missing[0]}")
    beyond = [step for step in counted if step > steps]
    if beyond:
        yield Violation(RULE, f"{len(beyond)} steps were taken beyond the last, {steps}")
    for step, found in sorted(counted.items()):
        if len(found) != parts_of[step]:
            yield Violation(RULE, f"step {step} has {len(found)} of {parts_of[step]} parts")


def _once(counted: dict[int, list[Line]], samples: int, steps: int) -> Iterator[Violation]:
    epochs: dict[int, Counter[int]] = {}
    for found in counted.values():
        for line in found:
            epochs.setdefault(line["epoch"], Counter()).update(line["ids"])
    last = counted[steps][0]["epoch"] if steps in counted else -1
    for epoch, seen in sorted(epochs.items()):
        twice = [sample for sample, times in seen.items() if times > 1]
        if twice:
            yield Violation(RULE, f"epoch {epoch}: {len(twice)} samples were seen more than once")
        if set(seen) - set(range(samples)):
            yield Violation(RULE, f"epoch {epoch}: samples that there are not")
        # The training may end within its last epoch.
        if len(seen) < samples and epoch != last:
            yield Violation(RULE, f"epoch {epoch}: {samples - len(seen)} samples were not seen")
