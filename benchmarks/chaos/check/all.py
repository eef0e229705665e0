"""All rules together: `violations` of a run's folder, beside that of an undisturbed one."""

from pathlib import Path

from benchmarks.chaos.check import fencing, kinds, leftovers, members, samples, weights
from benchmarks.chaos.check.evidence import Evidence, Violation


def violations(folder: Path, undisturbed: Path) -> list[Violation]:
    """Return all violations of invariants."""
    evidence = Evidence(folder)
    return [
        *samples.check(evidence),
        *members.check(evidence),
        *fencing.check(evidence),
        *kinds.check(evidence),
        *leftovers.check(evidence),
        *weights.check(evidence, undisturbed),
    ]
