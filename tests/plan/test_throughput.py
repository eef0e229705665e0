"""Lengths in tokens, and what a plan trains per second, money and energy."""

from dataclasses import replace

import pytest

from paceline.cli.options.number_list import large_number
from paceline.plan.inputs import PlanRequest
from paceline.plan.planner import Planned, make_plan
from paceline.specs import PacelineError, Prices
from paceline.specs.units import large

GPT = "gpt: layers=12 width=768 heads=12 seq=1k vocab=50304"
BATCH, SEQUENCE = 512, 1024
REQUEST = PlanRequest(model=GPT, device="a100-80gb", nodes=(2,), batch=(BATCH,))
PRICE = Prices(currency="EUR", per_node_hour=10.0)


@pytest.fixture(scope="module")
def planned() -> Planned:
    """Three billion tokens, with a price alone: before, a length had to be steps."""
    return make_plan(replace(REQUEST, tokens=3_000_000_000, prices=PRICE))


def test_tokens_are_steps_of_a_batch_of_sequences(planned: Planned) -> None:
    cost = planned.answer.training
    assert cost is not None
    assert cost.tokens is not None
    assert cost.tokens == cost.steps * BATCH * SEQUENCE
    assert 0 <= cost.tokens - 3_000_000_000 < BATCH * SEQUENCE


def test_throughput_by_hand(planned: Planned) -> None:
    said, cost = planned.answer, planned.answer.training
    assert cost is not None
    assert said.sequence == SEQUENCE
    assert said.tokens_per_second == pytest.approx(SEQUENCE * said.samples_per_second)
    hours = cost.seconds.value / 3600
    assert cost.money is not None
    assert cost.money == pytest.approx(2 * hours * PRICE.per_node_hour)
    assert cost.tokens is not None
    assert cost.kilowatt_hours is not None
    assert said.tokens_per_money == pytest.approx(cost.tokens / cost.money)
    assert said.tokens_per_kwh == pytest.approx(cost.tokens / cost.kilowatt_hours)
    assert said.samples_per_money == pytest.approx(cost.tokens / SEQUENCE / cost.money)


def test_chinchillas_rule_stands_beside_given_tokens(planned: Planned) -> None:
    (remark,) = [each for each in planned.answer.remarks if "Chinchilla" in each]
    rule = 20 * planned.answer.parameters
    assert f"is {large(rule)} tokens here" in remark
    assert f"{3e9 / rule:.3g} times that" in remark


def test_a_price_alone_is_enough_and_no_length_has_no_rule() -> None:
    said = make_plan(replace(REQUEST, prices=PRICE)).answer
    assert said.training is None
    assert said.tokens_per_money is not None
    assert not any("Chinchilla" in each for each in said.remarks)
    assert make_plan(REQUEST).answer.samples_per_money is None


def test_images_have_samples_instead_of_tokens() -> None:
    request = replace(REQUEST, model="resnet50", prices=PRICE)
    said = make_plan(request).answer
    assert said.sequence is said.tokens_per_second is said.tokens_per_money is None
    assert said.samples_per_money is not None
    assert said.samples_per_kwh is not None
    with pytest.raises(PacelineError, match="tokens of a sample of resnet50 are not known") as told:
        make_plan(replace(request, tokens=10**9))
    assert "--steps N" in told.value.fix


def test_a_length_is_given_once() -> None:
    with pytest.raises(PacelineError, match="--steps 7 and --tokens 300B both give the length"):
        make_plan(replace(REQUEST, steps=7, tokens=300 * 10**9))


@pytest.mark.parametrize(
    ("text", "number"),
    [("15T", 15 * 10**12), ("1.5B", 1_500_000_000), ("20M", 20_000_000), ("4096", 4096)],
)
def test_large_numbers_are_exact(text: str, number: int) -> None:
    assert large_number("--tokens", text) == number
    if number >= 10**6:
        assert large(number) == text


@pytest.mark.parametrize("text", ["", "0", "0.1", "-3B", "3G", "1e9", "ten", "1,5B", "nan"])
def test_other_words_are_no_number(text: str) -> None:
    with pytest.raises(PacelineError, match="is not a number above 0"):
        large_number("--tokens", text)
