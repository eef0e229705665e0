"""The printed result of a probe of learning."""

from typing import TYPE_CHECKING

from paceline.cli.tables.table import console, table
from paceline.specs import units

if TYPE_CHECKING:
    from paceline.specs import Learning


def show(learning: "Learning") -> None:
    """Print how the noise scale grew, and the critical batch that it suggests."""
    shown = table("samples", "gradient noise scale", "90 % interval", words=())
    for each in learning.growth:
        interval = f"{each.low:,.0f}–" + ("" if each.high is None else f"{each.high:,.0f}")
        scale = "not resolved" if each.scale is None else f"{each.scale:,.0f}"
        shown.add_row(f"{each.samples:,}", scale, interval)
    out = console()
    out.print(shown)
    out.print(in_words(learning), markup=False)


def in_words(learning: "Learning") -> str:
    """Return the critical batch with its interval, in one line."""
    found = units.bounded(learning.critical, learning.low, learning.high)
    weighted = ", coordinates weighted as by the optimizer" if learning.weighted else ""
    return (
        f"critical batch: {found} samples; measured in {learning.steps:,} steps of"
        f" {learning.batch:,.0f}{weighted}, and it usually grows further"
    )
