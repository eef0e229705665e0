"""The report of the conformance checks: a file that its reader can verify."""

import datetime
import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from paceline import __version__
from paceline.conformance.check import State
from paceline.specs import PacelineError
from paceline.specs.base import MOST_BYTES, Spec
from paceline.specs.owned_files import read_bounded


class CheckResult(Spec):
    """The result of one check."""

    name: str
    state: State
    figure: str
    figures: dict[str, Any]
    seconds: float


class ConformanceReport(Spec):
    """Results of all checks, without host names and paths."""

    format: Literal[1] = 1
    paceline: str = __version__
    date: datetime.date
    nodes: int
    devices_per_node: int
    checks: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed: each one that applies passed, or noise let it decide nothing."""
        return all(each.state != "failed" for each in self.checks)

    def content(self) -> dict[str, Any]:
        """Return the report as JSON's types."""
        plain: dict[str, Any] = json.loads(self.model_dump_json())
        return plain

    def write(self, path: Path) -> None:
        """Write the report with its hash."""
        content = self.content()
        path.write_text(json.dumps(content | {"sha256": _hash(content)}, indent=2) + "\n")

    @classmethod
    def read_verified(cls, path: Path) -> "ConformanceReport":
        """Read a report; refuse one whose content does not have the hash that it names."""
        try:
            content = json.loads(read_bounded(path, MOST_BYTES))
            named = content.pop("sha256")
            report = cls.model_validate(content)
        except OSError as error:
            raise PacelineError(
                f"{path} cannot be read: {error.strerror}", fix="give the path of a report"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = "wrong fields" if isinstance(error, ValidationError) else "no such JSON"
            raise PacelineError(
                f"{path} is not a report of `paceline doctor --devices`: {what}",
                fix="give the file that the command wrote, unchanged",
            ) from None
        if named != _hash(content):
            raise PacelineError(
                f"{path} was changed after it was written: its content does not have its sha256",
                fix="ask for the file that `paceline doctor --devices` wrote",
            )
        return report


def _hash(content: dict[str, Any]) -> str:
    """Return the SHA-256 of the content in one canonical form: sorted keys, no spaces."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
