"""What each kind of fault must, and must not, lead to."""

from collections.abc import Iterator

from benchmarks.chaos.check.evidence import Evidence, Line, Violation

RULE = "expected recovery"
_NO_ALARM = ("pause", "clock", "strangers", "second-trainer", "slow-link", "lost-packets")
"""Nobody may be given up for these."""
_ENDS = ("supervisor", "stop", "torn", "disk-flip", "memory", "folder-gone")
"""Faults after which a run must be started again: a training that has no room fails anew."""
_EXIT_CODES = {"stop": 3, "folder-gone": 6}
"""With which a run must end: it was asked to stop and can go on; it has no folder any more."""
_REFUSED = 2
"""The exit code of a command that was refused with one sentence."""
_MUST_NAME = {"nan": ("refused", 0, 0), "flip": ("refused", 0, 0), "straggler": ("slow", -40, 20)}
"""The event that must name the worker, and in which steps beside that of the fault; where the
setting watches. Who was named slow, and has not been as fast as the others for 16 steps since, is
not named again."""
_MUST_TELL = {
    "torn": "damaged",
    "disk-flip": "damaged",
    "disk-full": "not_saved",
    "read-only": "not_saved",
}
"""The event that must follow a fault."""


def check(evidence: Evidence) -> Iterator[Violation]:
    """Every fault was recovered from, and told of, and no more than that."""
    injected = evidence.told("injected")
    recovered = {line["number"]: line for line in evidence.told("recovered")}
    told: dict[str, int] = {}
    for fault in injected:
        named = f"fault {fault['number']} ({fault['kind']})"
        after = recovered.get(fault["number"])
        if after is None:
            yield Violation(RULE, f"{named} was not recovered from")
            continue
        if fault["kind"] in _NO_ALARM:
            lost = _lost(evidence, fault["generation"], after["generation"])
            if lost:
                yield Violation(RULE, f"{named}: workers were given up: {lost}")
        yield from _exited(evidence, fault, named)
        if fault["kind"] == "run-disk-full":
            yield from _caught_up(evidence, fault, named)
        if fault["kind"] in evidence.run["tells"] and not _named(evidence, fault):
            yield Violation(RULE, f"{named}: worker {fault['rank']} was not named")
        told[fault["kind"]] = told.get(fault["kind"], 0) + 1
    yield from _told(evidence, told)
    yield from _ended(evidence)


def _ended(evidence: Evidence) -> Iterator[Violation]:
    """A run ends before its time only where a fault is one that must end it."""
    last: Line = {"number": -1, "kind": "nothing"}
    for line in evidence.history:
        if line["what"] == "injected":
            last = line
        elif line["what"] == "recovered":
            last = {"number": line["number"], "kind": "nothing"}
        elif line["what"] == "exit" and line["code"] and not _may_end(evidence, last["kind"]):
            yield Violation(
                RULE,
                f"the run ended with code {line['code']} at step {line['step']}, after fault"
                f" {last['number']}",
            )


def _may_end(evidence: Evidence, kind: str) -> bool:
    return kind in _ENDS or (kind in _MUST_NAME and kind not in evidence.run["tells"])


def _exited(evidence: Evidence, fault: Line, named: str) -> Iterator[Violation]:
    """The first process that ended after a fault said why; a second trainer was refused."""
    after = [line for line in evidence.told("exit") if line["at"] > fault["at"]]
    wanted = _EXIT_CODES.get(fault["kind"])
    if wanted is not None and (not after or after[0]["code"] != wanted):
        yield Violation(RULE, f"{named}: the run did not end with code {wanted}")
    if fault["kind"] == "second-trainer":
        tried = evidence.told("second trainer")
        codes = [line["code"] for line in tried if line["number"] == fault["number"]]
        if codes != [_REFUSED]:
            yield Violation(RULE, f"{named}: it was not refused, but ended with {codes}")


def _caught_up(evidence: Evidence, fault: Line, named: str) -> Iterator[Violation]:
    """The run said that events could not be written, and wrote them later."""
    after = [each for node in evidence.events.values() for each in node[fault["events_before"] :]]
    changes = [each["kind"] for each in after if each.get("protection") == "events"]
    if changes[:1] != ["degraded"] or "restored" not in changes:
        yield Violation(RULE, f"{named}: it was not told, or not over: {changes[:4]}")


def _lost(evidence: Evidence, first: int, last: int) -> list[int]:
    """Who was gone when the generations after `first` up to `last` began."""
    return [
        rank
        for event in evidence.events_of("regrouped")
        if first < event["generation"] <= last
        for rank in event["lost"]
    ]


def _named(evidence: Evidence, fault: Line) -> bool:
    """Whether an event says which worker it was, soon enough."""
    event, since, until = _MUST_NAME[fault["kind"]]
    return any(
        since <= each["step"] - fault["at_step"] <= until
        and each["generation"] == fault["generation"]
        and fault["rank"] in each.get("ranks", [each.get("rank")])
        for each in evidence.events_of(event)
    )


def _told(evidence: Evidence, faults: dict[str, int]) -> Iterator[Violation]:
    """There are as many events as there were faults that must be told of."""
    needed: dict[str, int] = {}
    for kind, times in faults.items():
        if kind in _MUST_TELL:
            needed[_MUST_TELL[kind]] = needed.get(_MUST_TELL[kind], 0) + times
    for event, times in needed.items():
        found = _occasions(evidence.events_of(event))
        if found < times:
            yield Violation(RULE, f"{times} faults called for `{event}`, which was told {found}x")


def _occasions(events: list[Line]) -> int:
    """Several workers may tell of the same."""
    return len({(event["generation"], event.get("step"), event.get("rank")) for event in events})
