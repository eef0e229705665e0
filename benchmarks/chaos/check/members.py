"""All members hold the same weights after the same steps, and end together."""

from collections import defaultdict
from collections.abc import Iterator

from benchmarks.chaos.check.evidence import Evidence, StepLine, Violation

RULE = "replicas agree"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Hashes by step and generation where replicas always agree; in any case at the end."""
    if not evidence.told("over"):
        why = [line["why"] for line in evidence.told("gave up")]
        yield Violation(RULE, f"the run did not come to its end: {'; '.join(why)}")
    if evidence.run["agrees"]:
        yield from _at_each_step(evidence)
    yield from _at_the_end(evidence)


def _at_each_step(evidence: Evidence) -> Iterator[Violation]:
    bounds = {
        generation: evidence.counts_up_to(generation)
        for generation in {line.generation for line in evidence.step_lines}
    }
    held: dict[tuple[int, str, int], dict[str, list[str]]] = defaultdict(dict)
    for line in evidence.step_lines:
        # What a later generation took back was held by nobody in the end.
        if line.step <= bounds[line.generation] and not line.final:
            key = (line.step, line.whose, line.generation)
            held[key].setdefault(line.hash, []).append(line.worker)
    for (step, whose, generation), hashes in sorted(held.items()):
        if len(hashes) > 1:
            sides = " against ".join(", ".join(names) for names in hashes.values())
            yield Violation(RULE, f"step {step}, generation {generation}: {whose} differs: {sides}")


def _at_the_end(evidence: Evidence) -> Iterator[Violation]:
    last = [line for line in evidence.step_lines if line.final]
    if not last:
        yield Violation(RULE, "no worker came to the end")
        return
    steps = {line.step for line in last}
    if steps != {evidence.run["steps"]}:
        yield Violation(RULE, f"workers ended after {steps} of {evidence.run['steps']} steps")
    generations = {line.generation for line in last}
    if len(generations) > 1:
        yield Violation(RULE, f"workers ended in different generations: {generations}")
    by_part: dict[str, list[StepLine]] = defaultdict(list)
    for line in last:
        by_part[line.whose].append(line)
    for whose, found in by_part.items():
        if len({line.hash for line in found}) > 1:
            yield Violation(RULE, f"the {len(found)} workers that hold {whose} ended apart")
