"""The devices: their kind, memory, and the versions of what drives them."""

from collections import Counter

from paceline.conformance.check import Check, Outcome, failed, passed
from paceline.conformance.session import Session


def _run(session: Session) -> Outcome:
    workers = session.about
    names = Counter(each["device"] for each in workers)
    backend = workers[0]["backend"]
    figures = {
        "nodes": session.nodes,
        "devices": dict(names),
        "type": workers[0]["type"],
        "memory_bytes": [each["memory_bytes"] for each in workers],
        "backend": backend,
        "versions": workers[0]["versions"],
        "binding": [each["binding"] for each in workers if each["binding"]],
    }
    if any(each["versions"] != workers[0]["versions"] for each in workers):
        return failed("the nodes have different versions", **figures)
    shown = ", ".join(f"{count} × {name}" for name, count in names.items())
    versions = ", ".join(f"{name} {each}" for name, each in workers[0]["versions"].items())
    return passed(f"{shown}; backend {backend}; {versions}", **figures)


CHECK = Check(
    name="devices",
    about="kind of devices, their memory and versions",
    run=_run,
    typical_seconds=10,
)
