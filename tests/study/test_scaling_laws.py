"""Speed-ups, laws of scaling and how far they reach, from points made up after known laws."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline.specs import Interval, Kind, Law, Measured, Point, PointResult
from paceline.specs.measurements.study import families
from paceline.study.result import _findings
from paceline.study.scaling_laws import laws, reaches, with_scaling

Rule = Callable[[int], float]
SHARES = st.floats(0, 1)
SMALL = st.floats(0, 0.2)
NUMBERS_OF_WORKERS = st.lists(st.integers(2, 256), min_size=2, max_size=6, unique=True)


def _point(workers: int, *rates: float, nodes: int = 1, **varied: str) -> PointResult:
    """Runs of so many samples per second."""
    return PointResult(
        point=Point(nodes=nodes, devices_per_node=workers // nodes, varied=varied),
        runs=tuple(
            Measured(
                run=f"{workers}-{number}",
                samples_per_second=rate,
                step_seconds=64 / rate,
                batch=64,
                seconds={"forward": 64 / rate},
                network_seconds=0,
                limit="compute",
                final_loss=None,
            )
            for number, rate in enumerate(rates)
        ),
    )


def _exact(rule: Rule, workers: Sequence[int], repeat: int = 1) -> list[PointResult]:
    return [_point(n, *[250 * rule(n)] * repeat) for n in workers]


def _usl(a: float, b: float) -> Rule:
    return lambda n: n / (1 + a * (n - 1) + b * n * (n - 1))


def _amdahl(serial: float) -> Rule:
    return lambda n: 1 / (serial + (1 - serial) / n)


def _gustafson(serial: float) -> Rule:
    return lambda n: n - serial * (n - 1)


def _named(name: str, points: Sequence[PointResult], kind: Kind = "strong") -> Law:
    (law,) = (each for each in laws(points, kind) if each.name == name)
    return law


def _value(law: Law, number: str) -> float:
    return law.numbers[number].value


def _width(of: Interval | None) -> float:
    assert of is not None
    assert of.low is not None
    assert of.high is not None
    assert of.low <= of.value <= of.high
    return of.high - of.low


def _given_usl(a: float, b: float) -> Law:
    numbers = {"contention": Interval(value=a), "coherence": Interval(value=b)}
    return Law(name="usl", family="", numbers=numbers, off=0, curve=())


def test_speedups_are_by_one_worker_of_a_base_of_two() -> None:
    unfinished = _point(1)
    points = [_point(8, 600.0, 600.0), unfinished, _point(2, 190.0, 210.0)]
    eight, one, two = with_scaling(points)
    assert one == unfinished
    assert two.speedup == Interval(value=2)
    assert two.efficiency == Interval(value=1)
    assert _width(two.samples_per_second) > 0
    assert eight.speedup is not None
    assert eight.efficiency is not None
    assert eight.speedup.value == pytest.approx(6)
    assert eight.efficiency.value == pytest.approx(0.75)
    # Its own runs are alike: what is uncertain is the base.
    assert _width(eight.samples_per_second) == 0
    assert _width(eight.speedup) > 0
    assert _width(eight.efficiency) == pytest.approx(_width(eight.speedup) / 8)


def test_of_points_with_the_fewest_workers_the_first_is_the_base() -> None:
    one_node, many_nodes = with_scaling([_point(4, 400.0, 404.0), _point(4, 300.0, 304.0, nodes=4)])
    assert one_node.speedup == Interval(value=4)
    assert many_nodes.speedup is not None
    assert many_nodes.speedup.value == pytest.approx(4 * 302 / 402)
    assert _width(many_nodes.speedup) > 0


def test_one_run_has_no_interval_around_it() -> None:
    points = with_scaling([_point(1, 100.0, 102.0), _point(2, 190.0), _point(4, 350.0, 340.0)])
    assert _width(points[0].samples_per_second) > 0
    assert _width(points[2].speedup) > 0
    for each in (points[1].samples_per_second, points[1].speedup, points[1].efficiency):
        assert each is not None
        assert each.low is None
        assert each.high is None
    for law in laws(points, "strong"):
        assert all(number.low is number.high is None for number in law.numbers.values())


@given(SHARES, NUMBERS_OF_WORKERS)
def test_the_serial_part_is_found_again(serial: float, workers: list[int]) -> None:
    strong = _named("amdahl", _exact(_amdahl(serial), [1, *workers]))
    weak = _named("gustafson", _exact(_gustafson(serial), [1, *workers]), "weak")
    for law in (strong, weak):
        assert _value(law, "serial") == pytest.approx(serial, abs=1e-9)
        assert law.off == pytest.approx(0, abs=1e-9)


@given(SMALL, SMALL, NUMBERS_OF_WORKERS, st.sampled_from(["strong", "weak"]))
def test_contention_and_coherence_are_found_again(
    a: float, b: float, workers: list[int], kind: Kind
) -> None:
    law = _named("usl", _exact(_usl(a, b), [1, *workers]), kind)
    assert _value(law, "contention") == pytest.approx(a, abs=1e-6)
    assert _value(law, "coherence") == pytest.approx(b, abs=1e-6)
    assert law.off == pytest.approx(0, abs=1e-6)
    assert law.curve[0] == pytest.approx((1, 1))
    assert law.curve[-1][0] == pytest.approx(4 * max(workers))
    for n, speedup in law.curve:
        assert speedup == pytest.approx(n / (1 + a * (n - 1) + b * n * (n - 1)), rel=1e-3)


@given(st.floats(1.001, 1.5), NUMBERS_OF_WORKERS)
def test_more_than_linear_is_not_a_negative_number(power: float, workers: list[int]) -> None:
    points = _exact(lambda n: n**power, [1, *workers], repeat=2)
    for kind in ("strong", "weak"):
        for law in laws(points, kind):
            assert all(
                number == Interval(value=0, low=0, high=0) for number in law.numbers.values()
            )
            assert law.off > 0


def test_no_more_than_all_of_the_work_is_serial() -> None:
    points = _exact(lambda n: 1 / n, [1, 2, 4])
    assert _value(_named("amdahl", points), "serial") == 1
    assert _value(_named("gustafson", points, "weak"), "serial") == 1


@given(st.lists(st.floats(0.3, 1.2), min_size=4, max_size=4), SMALL, SMALL)
def test_no_other_numbers_fit_better(efficiencies: list[float], a: float, b: float) -> None:
    speedups = {n: n * each for n, each in zip((2, 4, 8, 16), efficiencies, strict=True)}
    law = _named("usl", [_point(1, 100.0), *(_point(n, 100 * s) for n, s in speedups.items())])

    def error(rule: Rule) -> float:
        return sum((speedup / rule(n) - 1) ** 2 for n, speedup in speedups.items())

    found = _usl(_value(law, "contention"), _value(law, "coherence"))
    assert error(found) <= error(_usl(a, b)) + 1e-9
    squares = [(found(n) / speedup - 1) ** 2 for n, speedup in speedups.items()]
    assert law.off == pytest.approx(math.sqrt(sum(squares) / 4))


@pytest.mark.parametrize("repeat", [2, 3])
def test_intervals_hold_the_truth(repeat: int) -> None:
    generator = np.random.default_rng(7)
    rule = _usl(0.05, 0.004)
    held = {"contention": 0, "coherence": 0, "speedup": 0}
    for _ in range(100):
        points = [
            _point(n, *(100 * rule(n) * generator.normal(1, 0.02, repeat))) for n in (1, 2, 4, 8)
        ]
        found = dict(_named("usl", points).numbers)
        speedup = with_scaling([points[0], points[-1]])[1].speedup
        assert speedup is not None
        found["speedup"] = speedup
        for name, truth in (("contention", 0.05), ("coherence", 0.004), ("speedup", rule(8))):
            low, high = found[name].low, found[name].high
            assert low is not None
            assert high is not None
            held[name] += low <= truth <= high
    assert min(held.values()) >= 88, held


def test_families_do_not_mix() -> None:
    plain = [_point(n, *(100 * _usl(0.1, 0)(n) * x for x in (0.99, 1.01))) for n in (1, 2, 4)]
    local = [
        _point(n, *(7 * _usl(0, 0.01)(n) * x for x in (0.98, 1.02)), sync="local")
        for n in (2, 4, 8)
    ]
    mixed = [each for pair in zip(local, plain, strict=True) for each in pair]
    assert with_scaling(mixed)[0::2] == with_scaling(local)
    assert with_scaling(mixed)[1::2] == with_scaling(plain)
    both = laws(mixed, "strong")
    assert {each.family for each in both} == {"", "sync=local"}
    for points in (plain, local):
        alone = laws(points, "strong")
        assert [each for each in both if each.family == alone[0].family] == list(alone)
        (reach,) = reaches(alone, points)
        assert reach in reaches(both, mixed)


def test_more_nodes_more_workers_per_node_and_both_are_curves_of_one_base() -> None:
    def scaled(nodes: int, devices: int, share: float) -> PointResult:
        return _point(nodes * devices, 100 * (1 + share * (nodes * devices - 1)), nodes=nodes)

    alone = scaled(1, 1, 1.0)
    horizontal = [scaled(nodes, 1, 0.9) for nodes in (2, 4)]
    vertical = [scaled(1, devices, 0.5) for devices in (2, 4)]
    hybrid = [scaled(2, 2, 0.7), scaled(2, 4, 0.7)]
    unfinished = _point(16, nodes=8)
    found = families([*hybrid, *vertical, *horizontal, unfinished, alone])
    assert found == {
        "horizontal": [alone, *horizontal],
        "vertical": [alone, *vertical],
        "hybrid": [alone, *hybrid],
    }
    assert list(families([alone, *horizontal])) == [""]
    fitted = laws([alone, *horizontal, *vertical, *hybrid], "weak")
    shares = {each.family: _value(each, "serial") for each in fitted if each.name == "gustafson"}
    assert shares == pytest.approx({"horizontal": 0.1, "vertical": 0.5, "hybrid": 0.3})


def test_a_law_needs_three_numbers_of_workers() -> None:
    two = [_point(1, 100.0), _point(4, 380.0), _point(4, 360.0, nodes=4), _point(8)]
    assert laws(two, "strong") == ()
    assert len(laws([*two, _point(16, 900.0)], "strong")) == 2


@given(st.floats(0, 2), st.floats(0, 2), st.floats(0.05, 0.99))
def test_with_one_more_worker_efficiency_is_below_the_bound(
    a: float, b: float, bound: float
) -> None:
    points = _exact(_usl(a, b), [1, 2, 4])
    (reach,) = reaches([_given_usl(a, b)], points, bound)

    def efficiency(n: int) -> float:
        return _usl(a, b)(n) / n

    assert reach.bound == bound
    if reach.workers is None:
        assert efficiency(400) >= bound * (1 - 1e-9)
    else:
        assert efficiency(reach.workers) >= bound * (1 - 1e-9)
        assert efficiency(reach.workers + 1) < bound * (1 + 1e-9)
        assert reach.workers <= 400


@given(st.floats(0, 2), st.floats(0, 2))
def test_with_more_workers_than_the_peak_throughput_falls(a: float, b: float) -> None:
    (reach,) = reaches([_given_usl(a, b)], _exact(_usl(a, b), [1, 2, 4]))
    rule = _usl(a, b)
    peak = reach.peak_workers
    if peak is None:
        assert rule(400) >= rule(399) * (1 - 1e-9)
    else:
        assert rule(peak + 1) <= rule(peak) * (1 + 1e-9)
        assert peak == 1 or rule(peak - 1) <= rule(peak) * (1 + 1e-9)


def test_reaches_by_hand() -> None:
    points = _exact(_usl(0, 0), [1, 2, 4])
    (linear,) = reaches([_given_usl(0, 0)], points)
    assert (linear.workers, linear.peak_workers) == (None, None)
    assert linear.batch_for == ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1))
    (contended,) = reaches([_given_usl(0.02, 0)], points)
    # 1 + 0.02 (n - 1) = 1.25 at 13.5 workers.
    assert (contended.workers, contended.peak_workers) == (13, None)
    (falling,) = reaches([_given_usl(0.1, 0.012)], points)
    # 2 workers: 1 + 0.1 + 0.024 = 1.124; 3 workers: 1 + 0.2 + 0.072 = 1.272 > 1.25. The curve is
    # highest at sqrt(0.9 / 0.012) = 8.66: 8 / 2.372 = 3.373, 9 / 2.664 = 3.378, 10 / 2.98 = 3.356.
    assert (falling.workers, falling.peak_workers) == (2, 9)


@given(SMALL, SMALL, st.floats(0.3, 0.95))
def test_the_larger_batch_keeps_efficiency_at_the_bound(a: float, b: float, bound: float) -> None:
    assume(a + b > 1e-3)
    points = _exact(_usl(a, b), [1, 3, 9])
    (reach,) = reaches([_given_usl(a, b)], points, bound)
    assert [n for n, _ in reach.batch_for] == [1, 3, 9, 18, 36]
    for n, times in reach.batch_for:
        # Strong: one worker takes a second for the batch of the training.
        computing = 1 / n
        overhead = 1 / _usl(a, b)(n) - computing
        efficiency = times * computing / (times * computing + overhead)
        # Weak: one worker takes a second for its share, and n shares are done in a step.
        alone, together = 1.0, n / _usl(a, b)(n)
        assert efficiency == pytest.approx(times * alone / (times * alone + together - alone))
        if times > 1:
            assert efficiency == pytest.approx(bound)
        else:
            assert times == 1
            assert efficiency >= bound * (1 - 1e-9)


@pytest.mark.parametrize(
    ("one", "two", "verdict"),
    [
        ((100, 101, 102), (195, 196, 197), "It scales well."),
        ((100, 101, 102), (90, 91, 92), "It scales badly."),
        ((100, 101, 102), (175, 180, 190), "It scales fairly to well."),
        ((100, 900), (50, 1500), "too noisy to say how well it scales, repeat with --repeat 100."),
        ((100,), (195,), "One run of each does not say how well it scales"),
    ],
    ids=["well", "badly", "in between", "noisy", "one run"],
)
def test_a_verdict_is_one_that_the_interval_supports(
    one: tuple[float, ...], two: tuple[float, ...], verdict: str
) -> None:
    points = with_scaling([_point(1, *one), _point(2, *two)])
    assert verdict in _findings(points, ())[0]
