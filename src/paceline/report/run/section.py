"""A section of a run's report, and the registry of all sections.

The page, the PDF, the tables and `--json` enumerate the registry: none of them names a section.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from pydantic_core import to_jsonable_python

from paceline.report.drawing.brief import Content
from paceline.report.reading.reader import RunReader
from paceline.report.reading.run_state import RunState
from paceline.report.run.figures import Summary, summary
from paceline.specs import Cluster, PacelineError, Run
from paceline.specs.registry import Registry

Figures = TypeVar("Figures")


class Section(Generic[Figures]):
    """One topic of a run's report: its figures, and how they are shown.

    A built-in section is a file in `report/run/sections` with an instance named `SECTION`. Another
    package adds one by an entry point of the group `paceline.sections`.
    """

    order: ClassVar[int]
    """Its place among the sections, the lowest first; built-in ones go from 0 to 100."""
    key: ClassVar[str] = ""
    """The name of its figures in `--json`; unset: each field of the figures has its own name."""

    def figures(self, run: "ReportedRun") -> Figures:
        """Compute what `--json` prints: a `Spec`, or plain values; `None` where it does not apply.

        Called for every report, so it should read columns rather than files.
        """
        return None  # type: ignore[return-value] # of a section without figures

    def content(self, run: "ReportedRun", figures: Figures) -> Content | None:
        """Return what the page and the PDF show; `None` where the section does not apply."""
        return None


SECTIONS: Registry[Section[Any]] = Registry(
    "section",
    group="paceline.sections",
    package="paceline.report.run.sections",
    attribute="SECTION",
    kind=Section,
)


@dataclass(frozen=True)
class ReportedRun:
    """A run as its report sees it."""

    run: Run
    state: RunState
    cluster: Cluster | None = None
    """Prices and power of the devices, used where power was not measured."""

    @classmethod
    def read(cls, run: Run, cluster: Cluster | None = None) -> "ReportedRun":
        """Read a run's folder."""
        return cls(run, RunReader(run).refresh(), cluster)

    @cached_property
    def summary(self) -> Summary:
        """The figures that every run has."""
        return summary(self.state)

    @cached_property
    def contents(self) -> dict[str, Content]:
        """What each section that applies shows, by its name, in order."""
        found = {
            name: section.content(self, figures)
            for name, (section, figures) in self._figures.items()
        }
        return {name: content for name, content in found.items() if content is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return the figures of all sections as plain values that are valid JSON."""
        found: dict[str, Any] = {}
        for name, (section, figures) in self._figures.items():
            plain = to_jsonable_python(figures)
            keyed = {section.key: plain} if section.key else plain or {}
            taken = found.keys() & keyed.keys()
            if taken:
                raise PacelineError(
                    f"the section {name!r} has figures named {', '.join(sorted(taken))}, which"
                    " another section has",
                    fix="give the section another key, or uninstall its package",
                )
            found |= keyed
        return found

    @cached_property
    def _figures(self) -> dict[str, tuple[Section[Any], Any]]:
        sections = {name: SECTIONS.get(name) for name in SECTIONS.names}
        ordered = sorted(sections.items(), key=lambda item: item[1].order)
        return {name: (section, section.figures(self)) for name, section in ordered}
