"""What a training costs at several sites, by hand and by properties."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.plan.inputs import PlanRequest
from paceline.plan.planner import Planned, make_plan
from paceline.plan.site_comparison import OfferedSite, compare, offers
from paceline.plan.training_cost import TooManyFailures, price
from paceline.specs import PacelineError, Prices
from paceline.specs.plans.site_comparison import SiteComparison, SiteCost

REQUEST = PlanRequest(
    model="gpt: layers=12 width=768 heads=12 seq=1k vocab=50304", batch=(512,), steps=1000
)
OWN = Prices(currency="EUR", per_node_hour=10, per_kwh=0.25, power_usage_effectiveness=1.2)
CLOUD = Prices(
    currency="EUR",
    per_node_hour=40,
    spot_per_node_hour=15,
    interruptions_per_node_hour=0.02,
    replacement_seconds=600,
)


def compared(*prices: Prices) -> SiteComparison:
    sites = [
        OfferedSite(f"site {number}", each, device="a100-80gb", nodes=(4,))
        for number, each in enumerate(prices)
    ]
    return compare(REQUEST, sites, lambda _done: None)


def row(found: SiteComparison, site: str, *, spot: bool = False) -> SiteCost:
    (one,) = [each for each in found.rows if each.site == site and each.spot == spot]
    return one


def test_hours_and_electricity_by_hand() -> None:
    assert price(OWN, 8.0, 100.0) == pytest.approx(80 + 0.25 * 1.2 * 100)
    assert price(OWN, 8.0, None) is None
    assert price(CLOUD, 8.0, None) == pytest.approx(320)
    assert price(None, 8.0, 100.0) is None


def test_the_cheapest_comes_first_and_breaks_even_with_the_next() -> None:
    found = compared(OWN, CLOUD)
    costs = [each.cost.money or 0.0 for each in found.rows]
    assert costs == sorted(costs)
    first, second = found.rows[:2]
    assert first.break_even_per_node_hour is not None
    dearer = OWN.model_copy(update={"per_node_hour": first.break_even_per_node_hour})
    assert first.site == "site 0"
    again = row(compared(dearer, CLOUD), "site 0")
    assert again.cost.money == pytest.approx(second.cost.money)


def test_spot_nodes_take_longer_and_break_even_by_interruptions() -> None:
    found = compared(OWN, CLOUD)
    spot, steady = row(found, "site 1", spot=True), row(found, "site 1")
    assert spot.cost.seconds.value > steady.cost.seconds.value
    assert spot.break_even_interruptions is not None
    often = CLOUD.model_copy(update={"interruptions_per_node_hour": spot.break_even_interruptions})
    as_dear = row(compared(OWN, often), "site 1", spot=True)
    assert as_dear.cost.money == pytest.approx(steady.cost.money, rel=1e-3)


@pytest.fixture(scope="module")
def planned() -> Planned:
    return make_plan(replace(REQUEST, device="a100-80gb", nodes=(4,), prices=CLOUD))


@given(rate=st.floats(0, 0.5), seconds=st.floats(0, 3600), spot=st.floats(0.01, 40))
def test_more_interruptions_never_cost_less(
    rate: float, seconds: float, spot: float, planned: Planned
) -> None:
    def money(times: float) -> float:
        offer = CLOUD.model_copy(
            update={
                "spot_per_node_hour": spot,
                "interruptions_per_node_hour": rate * times,
                "replacement_seconds": seconds,
            }
        )
        try:
            return offers("cloud", offer, planned)[1].cost.money or 0.0
        except TooManyFailures:
            return math.inf

    assert money(1.0) <= money(1.5) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("prices", "request_", "problem"),
    [
        ((OWN, CLOUD.model_copy(update={"currency": "USD"})), REQUEST, "EUR and USD"),
        ((OWN, CLOUD), replace(REQUEST, steps=None), "a whole training"),
        ((OWN, CLOUD.model_copy(update={"interruptions_per_node_hour": 500})), REQUEST, "get on"),
    ],
)
def test_what_cannot_be_compared(
    prices: tuple[Prices, ...], request_: PlanRequest, problem: str
) -> None:
    sites = [OfferedSite("one", each, device="a100-80gb", nodes=(4,)) for each in prices]
    with pytest.raises(PacelineError, match=problem):
        compare(request_, sites, lambda _done: None)
