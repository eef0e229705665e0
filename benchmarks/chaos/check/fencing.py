"""Nothing counts that an old generation does after a newer one has begun.

By the order of lines in one node's file and by the numbers of steps, never by clocks.
"""

from collections.abc import Iterator

from benchmarks.chaos.check.evidence import Evidence, Violation

RULE = "no stale generation"
_COMMITS = ("saved", "steps", "finished", "evaluated", "resumed")
_BEGINS = ("regrouped", "started", "resumed")


def check(evidence: Evidence) -> Iterator[Violation]:
    """Events of a node, and the steps of every worker."""
    for node, events in evidence.events.items():
        newest = -1
        for event in events:
            generation = event["generation"]
            if event["kind"] in _COMMITS and generation < newest:
                what = f"{event['kind']} (step {event.get('step', event.get('first', '-'))})"
                yield Violation(
                    RULE, f"{node}: {what} of generation {generation} after {newest} had begun"
                )
            if event["kind"] in _BEGINS:
                newest = max(newest, generation)
    yield from _steps_of_workers(evidence)


def _steps_of_workers(evidence: Evidence) -> Iterator[Violation]:
    """A worker goes from generation to generation, and inside one from step to step."""
    last: dict[str, tuple[int, int]] = {}
    for line in evidence.step_lines:
        generation, step = last.get(line.worker, (-1, -1))
        if line.generation < generation:
            yield Violation(
                RULE,
                f"worker {line.worker} took step {line.step} in generation {line.generation}, after"
                f" one in {generation}",
            )
        if line.generation == generation and line.step != step + 1 and not line.final:
            yield Violation(
                RULE,
                f"worker {line.worker}, generation {generation}: step {line.step} after {step}",
            )
        last[line.worker] = (line.generation, line.step)
