"""The printed comparison of sites: what a training costs at each."""

from typing import TYPE_CHECKING

from paceline.cli.tables.table import console, table
from paceline.specs.units import count, duration, rate

if TYPE_CHECKING:
    from paceline.specs.plans.site_comparison import SiteComparison, SiteCost


def show(found: "SiteComparison") -> None:
    """Print a row per site and offer, cheapest first, then what would turn the choice."""
    unit = f" ({found.currency})" if found.currency else ""
    columns = ("site", "nodes", "time", "goodput", "node-hours", "kWh")
    money = (f"cost{unit}", "per node-hour", "breaks even at")
    shown = table(*columns, *money, words={"site"})
    for number, row in enumerate(found.rows):
        energy = row.cost.kilowatt_hours
        shown.add_row(
            _name(row),
            f"{row.nodes:,}",
            duration(row.cost.seconds.value),
            f"{row.cost.goodput:.1%}",
            rate(row.node_hours),
            "-" if energy is None else rate(energy),
            f"{row.cost.money:,.2f}",
            f"{row.per_node_hour:,.2f}",
            _price(row),
            style=None if number else "bold",
        )
    out = console()
    out.print(f"{found.model}, batch {found.batch:,}: {count(found.rows[0].cost.steps, 'step')}")
    out.print(shown)
    for sentence in sentences(found):
        out.print(sentence, markup=False)


def sentences(found: "SiteComparison") -> list[str]:
    """Return what would turn the choice, and where the prices are from."""
    first = found.rows[0]
    said = []
    if len(found.rows) > 1:
        said.append(
            f"{_name(first)} is the cheapest as long as its node-hour costs less than"
            f" {_price(first)}; any other would be, below the price at the end of its row."
        )
    for row in found.rows:
        if row.break_even_interruptions is not None:
            said.append(
                f"{_name(row)} costs less than the same nodes for good up to one interruption of a"
                f" node in {duration(3600 / row.break_even_interruptions)}."
            )
    said += [f"Prices of {row.site}: {row.source}." for row in found.rows if not row.spot]
    return said


def _name(row: "SiteCost") -> str:
    return f"{row.site}, spot" if row.spot else row.site


def _price(row: "SiteCost") -> str:
    price = row.break_even_per_node_hour
    if price is None:
        return "-"
    return f"{price:,.2f}" if price > 0 else "no price"
