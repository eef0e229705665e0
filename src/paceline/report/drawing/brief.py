"""What a report says, whatever form it has."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.report.drawing.chart import Picture
from paceline.report.drawing.tables import Table

Tile = tuple[str, str, str, str]
"""Label, big figure, a small line under it, and how good that is: a status, or nothing."""


@dataclass(frozen=True)
class Brief:
    """The first screen, the pictures and the tables that matter most."""

    title: str
    sentence: str
    tiles: Sequence[Tile]
    pictures: Sequence[Picture]
    tables: Sequence[Table]
    remarks: Sequence[str] = field(default=())
    """Worth knowing."""
    notes: Sequence[str] = field(default=())
    """What a reader must know to trust the figures."""
