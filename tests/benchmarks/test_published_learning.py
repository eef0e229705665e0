"""The law of the critical batch on made-up tables: nothing scored it on published ones before."""

import pytest

from benchmarks.learning.published import reference_points, scored, submitted_points


def reference_row(benchmark: str, batch: int, mean: float, latest: str = "1") -> dict[str, str]:
    return {
        "benchmark": benchmark,
        "batch_size": str(batch),
        "mean": str(mean),
        "latest": latest,
    }


def test_a_benchmark_that_follows_the_law_is_extrapolated() -> None:
    rows = [reference_row("made", batch, 100 * (1 + batch / 64)) for batch in (16, 32, 64, 128)]
    rows += [reference_row("made", 16, 1.0, latest="0"), reference_row("few", 16, 1.0)]
    points = reference_points(rows)
    assert scored("reference", "few", points["few"]) is None
    found = scored("reference", "made", points["made"])
    assert found is not None
    assert found.critical == pytest.approx(64)
    assert (found.batches, found.smallest, found.largest, found.beyond) == (4, 16, 128, 4)
    assert found.error == pytest.approx(0)
    assert found.extrapolated == pytest.approx(0)
    # The null model knows 125 or 150 of 125, 150, 200 and 300.
    assert found.null_error == pytest.approx((25 / 125 + 0 + 50 / 200 + 150 / 300) / 4)
    assert found.null_extrapolated == pytest.approx((75 / 200 + 175 / 300) / 2)


def test_samples_that_do_not_grow_have_no_critical_batch() -> None:
    points = [(1.0, 5.0), (2.0, 5.0), (4.0, 5.0), (8.0, 5.0)]
    found = scored("reference", "flat", points)
    assert found is not None
    assert found.critical is None
    assert found.extrapolated == found.null_extrapolated == 0


def test_submissions_are_medians_by_batch_in_one_unit() -> None:
    rows = [
        {"org": org, "benchmark": name, "global_batch": batch, "last_eval_samples": samples}
        for org, name, batch, samples in (
            ("A", "gnn", "8", "100"),
            ("B", "rgat", "8", "120"),
            ("C", "rgat", "8", "500"),
            ("C-dc-power", "rgat", "8", "500"),
            ("D", "rgat", "16", "0.7"),  # epochs
            ("E", "rgat", "32", "130"),
            ("F", "rgat", "", "130"),
        )
    ]
    assert submitted_points(rows) == {"rgat": [(8.0, 120.0), (32.0, 130.0)]}
