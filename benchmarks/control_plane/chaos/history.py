"""Check what light workers did: one history of steps, in one generation at a time."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class History:
    """All notes of a rig's workers."""

    notes: dict[str, list[dict[str, Any]]]
    """By worker, in the order in which it wrote them."""

    @classmethod
    def read(cls, folder: Path) -> "History":
        """Return the notes in a rig's folder; a worker that was killed may have torn its last."""
        notes = {}
        for path in folder.glob("steps-*.jsonl"):
            lines = path.read_text().splitlines()
            notes[path.stem] = [json.loads(line) for line in lines if line.endswith("}")]
        return cls(notes)

    def violations(self, last: Iterable[str]) -> list[str]:
        """Return what must not have happened; `last`: the workers that live at the end."""
        decided = self._decided()
        found = []
        newest = 0
        for one in decided:
            if one["generation"] < newest:
                found.append(f"generation {one['generation']} stepped after {newest}")
            newest = max(newest, one["generation"])
        for name, notes in self.notes.items():
            found += _not_monotone(name, notes)
        digests = lineage(decided)
        for name in last:
            steps = [each for each in self.notes[name] if "step" in each]
            if not steps:
                found.append(f"{name} took no step")
            elif steps[-1]["digest"] != digests.get(steps[-1]["step"]):
                found.append(f"{name}: its steps are not each decided step once")
        return found

    @property
    def steps(self) -> int:
        """Steps in the last worker's history."""
        return max((one["decided"] for one in self._decided()), default=0)

    @property
    def repeated(self) -> int:
        """Steps that were decided more than once: those who had taken them were lost."""
        return len(self._decided()) - len({one["decided"] for one in self._decided()})

    def _decided(self) -> list[dict[str, Any]]:
        found = [each for notes in self.notes.values() for each in notes if "decided" in each]
        return sorted(found, key=lambda each: int(each["at"]))


def next_digest(digest: str, generation: int, step: int) -> str:
    """Return the digest of a history with one more step."""
    return sha256(f"{digest} {generation} {step}".encode()).hexdigest()


def lineage(decided: list[dict[str, Any]]) -> dict[int, str]:
    """Return the digest after each step if each step counts once, as it was decided last."""
    generations = {one["decided"]: one["generation"] for one in decided}
    digests = {0: ""}
    for step in range(1, max(generations, default=0) + 1):
        if step not in generations:
            break
        digests[step] = next_digest(digests[step - 1], generations[step], step)
    return digests


def _not_monotone(name: str, notes: list[dict[str, Any]]) -> list[str]:
    found, at, generation = [], 0, -1
    for each in notes:
        if "restored" in each:
            at = each["restored"]
        elif "step" in each:
            if each["step"] != at + 1 or each["generation"] < generation:
                found.append(f"{name}: step {each['step']} after {at}")
            at, generation = each["step"], each["generation"]
    return found
