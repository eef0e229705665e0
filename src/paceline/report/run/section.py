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
from paceline.specs import Cluster, PacelineError, Prices, Run
from paceline.specs.registry import Registry

Figures = TypeVar("Figures")


class Section(Generic[Figures]):
    """One topic of a run's report: its figures, and how they are shown.

    A built-in section is a file in `report/run/sections` with an instance named `SECTION`. Another
    package adds one by an entry point of the group `paceline.sections`.
    """

    order: ClassVar[int]
    """Position among the sections, lowest first; built-in sections use 0 to 100."""
    key: ClassVar[str] = ""
    """Name of its figures in `--json`; if empty, each field of the figures is a top-level name."""

    def figures(self, run: "ReportedRun") -> Figures:
        """Compute the section's part of `--json`: a `Spec` or plain values; None if not applicable.

        Every report calls this, so it should read columns rather than files.
        """
        return None  # type: ignore[return-value] # of a section without figures

    def content(self, run: "ReportedRun", figures: Figures) -> Content | None:
        """Return the content for the page and the PDF, or None if the section does not apply."""
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
    """A run with the state and figures that its report uses."""

    run: Run
    state: RunState
    cluster: Cluster | None = None
    """Prices and power of the devices, used if power was not measured."""
    given_prices: Prices | None = None
    """What a node costs; None: as the cluster's file says."""

    @classmethod
    def read(
        cls, run: Run, cluster: Cluster | None = None, prices: Prices | None = None
    ) -> "ReportedRun":
        """Read a run's folder."""
        return cls(run, RunReader(run).refresh(), cluster, prices)

    @property
    def prices(self) -> Prices | None:
        """What a node costs, if it is known."""
        return self.given_prices or (self.cluster.prices if self.cluster else None)

    @cached_property
    def summary(self) -> Summary:
        """The figures that every run has."""
        return summary(self.state)

    @cached_property
    def contents(self) -> dict[str, Content]:
        """The content of each applicable section by name, in order."""
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
