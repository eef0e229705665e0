"""Host synchronizations: in how many steps the host waits for its device."""

from collections import Counter

from paceline.conformance.check import Check, Outcome, failed, not_applicable, passed
from paceline.conformance.session import Session
from paceline.conformance.worker.figures import read_figures
from paceline.specs import Layout


def _run(session: Session) -> Outcome:
    if not all(each["counts_waits"] for each in session.about):
        return not_applicable("this kind of device does not count waits of the host")
    layouts = {"replicas": Layout(replicas=session.workers)}
    if session.workers > 1:
        layouts["shards"] = Layout(shards=session.workers)
    found: dict[str, Counter[str]] = {}
    steps = 0
    for name, layout in layouts.items():
        workers = read_figures(session.measured("measurements.py", "host_waits", layout))
        steps = workers[0]["steps"]
        found[name] = Counter()
        for each in workers:
            found[name] |= Counter(each["waits"])
    words = "; ".join(f"{name}: {_words(waits)}" for name, waits in found.items())
    figures = {"steps": steps, "waits": {name: dict(waits) for name, waits in found.items()}}
    if any(found.values()):
        return failed(f"in {steps} steps, {words}", **figures)
    return passed(f"0 in {steps} steps ({', '.join(found)})", **figures)


def _words(waits: Counter[str]) -> str:
    causes = ", ".join(f"{name} ({count})" for name, count in waits.most_common(3))
    return f"{waits.total()} waits{f': {causes}' if causes else ''}"


CHECK = Check(
    name="host-waits",
    about="the host does not wait for its device in a step",
    run=_run,
    typical_seconds=20,
)
