"""What the workers of a run have written down: when steps were committed, and on which samples."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

Attempt = tuple[str, int]
"""A name of those who took part, and the step."""


@dataclass(frozen=True)
class Commit:
    """A step whose update is in the weights of a worker."""

    at: float
    """By the clock that all processes of this machine share."""
    process: int
    worker: int
    attempt: str
    step: int


@dataclass
class History:
    """Of all workers of a run."""

    workers: dict[int, int] = field(default_factory=dict)
    """The worker's number by the process that it was."""
    commits: list[Commit] = field(default_factory=list)
    entered: dict[Attempt, list[int]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(cls, folder: Path, ledger: Path | None = None) -> Self:
        """What is written so far; what entered the steps, where Paceline's ledger has that, and in
        which generation of workers, is taken from there."""
        found = cls()
        generations: dict[int, str] = {}
        if ledger is not None:
            for step, (generation, ids) in steps_of(ledger).items():
                generations[step] = generation
                found.entered[generation, step] = ids
        for path in folder.glob("*.jsonl"):
            if not (lines := _lines(path)):
                continue
            head = lines.pop(0)
            found.workers[head["pid"]] = head["worker"]
            for line in lines:
                if "ids" in line:
                    found.entered[line["attempt"], line["step"]] += line["ids"]
                else:
                    line["attempt"] = generations.get(line["step"], line["attempt"])
                    found.commits.append(Commit(process=head["pid"], worker=head["worker"], **line))
        found.commits.sort(key=lambda commit: commit.at)
        return found

    def last_step(self) -> int:
        """The furthest that any worker is."""
        return max((commit.step for commit in self.commits), default=0)

    def recovered(self, fault_at: float, victim: int) -> Commit | None:
        """The first step after a fault that goes beyond those before it, committed by others than
        the victim (a process), after whoever takes part had changed.

        Those who had the victim's part of a step already commit it, which is no recovery.
        """
        before = [commit for commit in self.commits if commit.at <= fault_at]
        furthest = max((commit.step for commit in before), default=0)
        attempt = before[-1].attempt if before else None
        for commit in self.commits:
            later = commit.at > fault_at and commit.step > furthest
            if later and commit.process != victim and commit.attempt != attempt:
                return commit
        return None

    def counting(self) -> dict[int, list[int]]:
        """The samples of each step that counts: of its last attempt that was committed."""
        last = {commit.step: commit.attempt for commit in self.commits}
        return {step: self.entered[attempt, step] for step, attempt in last.items()}

    def committed_at(self) -> dict[int, float]:
        """When each step that counts was first committed by somebody, in its last attempt."""
        attempts = {commit.step: commit.attempt for commit in self.commits}
        found: dict[int, float] = {}
        for commit in self.commits:
            if commit.attempt == attempts[commit.step]:
                found.setdefault(commit.step, commit.at)
        return found


def steps_of(ledger: Path) -> dict[int, tuple[str, list[int]]]:
    """The generation and the samples of each step that counts, as Paceline has written them."""
    steps: dict[int, tuple[str, list[int]]] = {}
    for path in sorted(ledger.glob("start-*-part-*.jsonl")):
        start = path.name.partition("-part-")[0]
        if not (lines := _lines(path)):
            continue
        head = lines.pop(0)
        # What a later generation did not go on from was never learnt from.
        steps = {
            step: (other, ids)
            for step, (other, ids) in steps.items()
            if step <= head["resumed"] or other == start
        }
        for line in lines:
            steps.setdefault(line["step"], (start, []))[1].extend(line["ids"])
    return steps


def lost_and_doubled(steps: dict[int, list[int]], within: range, batch: int) -> tuple[int, int]:
    """Of the samples that belong to some steps: those in no step that counts, and those that are
    there again."""
    expected = range((within[0] - 1) * batch, within[-1] * batch)
    known = (ids for step, ids in steps.items() if step <= within[-1])
    counts = Counter(each for ids in known for each in ids if each in expected)
    return len(expected) - len(counts), counts.total() - len(counts)


def _lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines: a worker may have been killed in the middle of its last one."""
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
