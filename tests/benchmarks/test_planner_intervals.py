"""Widths that are earned on tables left out hold what they promise on new tables."""

import numpy as np
import pytest

from benchmarks.planner.score.intervals import (
    interval_score,
    memory_bounds,
    quantile_of_tables,
)
from paceline.cluster.collectives import Array

DRAWS = 2000


def tables(random: np.random.Generator, count: int) -> list[Array]:
    """Made tables: each has a level of its own and 5 to 100 rows."""
    return [
        random.normal(random.normal(0, 0.1), 0.05, random.integers(5, 100)) for _ in range(count)
    ]


def test_nine_of_ten_rows_of_a_new_table_are_within() -> None:
    random = np.random.default_rng(0)
    inside = []
    for _ in range(DRAWS):
        *known, new = (np.abs(each) for each in tables(random, 13))
        inside.append(np.mean(new <= quantile_of_tables(known)))
    assert 0.9 <= np.mean(inside) < 0.97


def test_a_table_weighs_the_same_however_many_rows_it_has() -> None:
    few, many = np.array([0.1, 0.2]), np.array([0.3, 0.4])
    assert quantile_of_tables([few, many], 0.7, unseen=False) == pytest.approx(
        quantile_of_tables([np.repeat(few, 50), many], 0.7, unseen=False)
    )


def test_few_tables_promise_nothing() -> None:
    """Of fewer than nine tables, one in ten is not known."""
    some = [np.array([0.1, 0.2])]
    assert quantile_of_tables(some * 8) == np.inf
    assert quantile_of_tables(some * 9) == 0.2


def test_the_score_prefers_an_interval_of_the_right_width() -> None:
    errors = np.random.default_rng(1).normal(0, 0.1, 10_000)
    right = interval_score(errors, 0.1645)
    assert right < interval_score(errors, 0.08)
    assert right < interval_score(errors, 0.33)


@pytest.mark.parametrize("count", [3, 12])
def test_memory_of_a_new_group_is_below_its_bound(count: int) -> None:
    random = np.random.default_rng(2)
    below = []
    for _ in range(DRAWS):
        *known, new = tables(random, count + 1)
        below.append(np.mean(new <= memory_bounds(known, [known])[1]))
    assert 0.93 < np.mean(below) < 0.99
