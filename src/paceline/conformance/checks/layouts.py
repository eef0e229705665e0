"""Layouts: each one has the losses of a single device."""

from paceline.conformance.check import Check, Outcome, failed, passed
from paceline.conformance.losses import difference
from paceline.conformance.session import Session
from paceline.specs import Layout, PacelineError

LARGEST_DIFFERENCE = 1e-4


def _layouts(workers: int) -> dict[str, Layout]:
    """Return the layouts that this many workers can take, by name."""
    found = {"replicas": Layout(replicas=workers), "shards": Layout(shards=workers)}
    if workers % 2 == 0:
        half = workers // 2
        if half > 1:
            found["replicas x shards"] = Layout(replicas=half, shards=2)
        found["tensor"] = Layout(replicas=half, tensor=2)
        found["pipeline"] = Layout(replicas=half, pipeline=2)
    return found


def _run(session: Session) -> Outcome:
    differences: dict[str, float] = {}
    problems: dict[str, str] = {}
    for name, layout in _layouts(session.workers).items():
        try:
            losses = session.trained(layout).loss
            differences[name] = difference(losses, session.losses_of_one)
        except PacelineError as error:
            problems[name] = error.problem
    for name, found in differences.items():
        if not found <= LARGEST_DIFFERENCE:
            problems[name] = f"losses differ by {found:.1e}"
    if problems:
        words = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        return failed(words, largest_relative_difference=differences)
    worst = max(differences.values())
    return passed(
        f"{', '.join(differences)}: losses within {worst:.0e} of one device's",
        largest_relative_difference=differences,
    )


CHECK = Check(
    name="layouts",
    about="every layout has the losses of one device",
    run=_run,
    typical_seconds=60,
    least_workers=2,
)
