"""The contents of a report, independent of its output format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.report.drawing.chart import Chart
from paceline.report.drawing.tables import Table

Tile = tuple[str, str, str, str]
"""Label, figure, a small line below it, and a status that colors it (may be empty)."""


def _no_charts(altair: ModuleType) -> Sequence[Chart]:
    return ()


@dataclass(frozen=True)
class Content:
    """The part that one section contributes to a report.

    On the page and in the PDF, title, words and tables form the section itself; the rest goes to
    the first screen, to the charts, and to the table of figures.
    """

    title: str = ""
    words: Sequence[str] = ()
    """Paragraphs below the title; `code` in backticks."""
    tables: Sequence[Table] = ()
    template: Path | None = None
    """A Jinja template that the page shows instead of words and tables."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The variables of the template."""
    charts: Callable[[ModuleType], Sequence[Chart]] = _no_charts
    """Draw the section's charts with Altair; called only for a run that took a step."""
    tiles: Sequence[Tile] = ()
    rows: Sequence[tuple[str, str | None]] = ()
    """Quantities and values for the table of figures; `None` is left out."""
    remarks: Sequence[str] = ()
    notes: Sequence[str] = ()
    """Warnings on the first screen."""
    alert: tuple[str, str] | None = None
    """The failure and its message, for the top of the page, with a link to this section."""

    @property
    def shown(self) -> bool:
        """Whether the section has a part of its own on the page."""
        return bool(self.title or self.words or self.tables or self.template)


@dataclass(frozen=True)
class Brief:
    """The first screen, the charts, the tables and the sections of a report."""

    title: str
    sentence: str
    tiles: Sequence[Tile]
    pictures: Sequence[Chart]
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = ()
    """Findings."""
    notes: Sequence[str] = ()
    """Warnings that affect how far the figures can be trusted."""
    sections: Sequence[Content] = ()
    """Sections that follow the tables."""
