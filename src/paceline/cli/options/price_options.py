"""Prices of nodes, from an option or the site's files."""

from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.options.site_defaults import site_prices

if TYPE_CHECKING:
    from paceline.specs import Prices

Price = Annotated[
    float | None,
    typer.Option(
        "--price",
        min=0,
        metavar="AMOUNT",
        help="Price of one node for an hour (default: of the site's or the cluster's file).",
    ),
]


def given_prices(context: typer.Context) -> "Prices | None":
    """Return the prices that the user gave, else those of the site's files; None: the cluster's."""
    from paceline.specs import PacelineError, Prices
    from paceline.specs.measurements.prices import MOST_MONEY

    prices, price = site_prices(context), context.params["price"]
    if price is None:
        return prices
    if not 0 <= price <= MOST_MONEY:  # also true for NaN
        raise PacelineError(
            f"--price {price} is not from 0 to {MOST_MONEY:.0e}",
            fix="give the price of one node for an hour",
        )
    if prices is None:
        return Prices(per_node_hour=price, source="--price")
    return prices.model_copy(update={"per_node_hour": price, "source": "--price"})
