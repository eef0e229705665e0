"""Numbers as people say them."""

import pytest

from paceline.specs import units


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 ms"),
        (0.0002, "less than 1 ms"),
        (0.07, "70 ms"),
        (0.9999, "1.00 s"),
        (12.34, "12.3 s"),
        (59.97, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.8, "1 h 00 min"),
        (90_000, "1 d 01 h"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    assert units.duration(seconds) == words


def test_numbers() -> None:
    assert [units.rate(value) for value in (0.4213, 81.34, 12_040.2)] == [
        "0.421",
        "81.3",
        "12,040",
    ]
    assert [units.milliseconds(value) for value in (0.0042, 0.0423, 1.5)] == [
        "4.20",
        "42.3",
        "1,500",
    ]
    losses = (1.47, 0.00079248, 12_345.6, float("inf"), float("nan"), None)
    words = ["1.470", "0.0007925", "1.235e+04", "infinite", "NaN", "–"]
    assert [units.loss(value) for value in losses] == words
    assert [units.size(value) for value in (812, 4100, 2_000_000)] == [
        "812 B",
        "4.1 kB",
        "2.0 MB",
    ]
    assert [units.count(value, "step") for value in (1, 2000)] == ["1 step", "2,000 steps"]
    assert [units.percent(value) for value in (0, 0.00001, 0.00085, 0.0123, 0.48, 1)] == [
        "0 %",
        "less than 0.01 %",
        "0.085 %",
        "1.2 %",
        "48 %",
        "100 %",
    ]


def test_what_is_paid_for() -> None:
    joules = (0.0482, 6.25, 4000, 2.5e6, 4.5e7, 7.2e9)
    words = ["48.2 mJ", "6.25 J", "4 kJ", "2.5 MJ", "12.5 kWh", "2,000 kWh"]
    assert [units.energy(value) for value in joules] == words
    assert [units.mass(value) for value in (0.444, 2100, 4.3e6)] == [
        "0.444 g",
        "2.1 kg",
        "4.3 t",
    ]
    amounts = (0.0, 0.003, 0.42, 1234.5)
    assert [units.money(value) for value in amounts] == [
        "0.00",
        "less than 0.01",
        "0.42",
        "1,234.50",
    ]
