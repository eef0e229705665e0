"""Joules from watts and from counters, held against sources whose joules are known."""

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.observe.usage.energy_counters import Counter, Integral, processor_counters

RANGE = 262_143.328850
"""Joules after which RAPL's counter of a server begins again: 2³² × 61 µJ."""


def _sine(at: float) -> tuple[float, float]:
    """Watts and the joules since 0: between 100 W and 500 W, twice a minute."""
    turn = 2 * math.pi / 30
    return 300 + 200 * math.sin(turn * at), 300 * at + 200 * (1 - math.cos(turn * at)) / turn


def _stairs(at: float) -> tuple[float, float]:
    """100 W and 400 W by turns, 20 s each."""
    rounds, rest = divmod(at, 40.0)
    joules = rounds * 10_000 + min(rest, 20.0) * 100 + max(0.0, rest - 20.0) * 400
    return (100 if rest < 20 else 400), joules


def _ramp(at: float) -> tuple[float, float]:
    return 50 + at, 50 * at + at * at / 2


@pytest.mark.parametrize("source", [_sine, _stairs, _ramp])
@pytest.mark.parametrize("seed", range(5))
def test_watts_at_uneven_times_come_to_the_joules_within_one_percent(
    source: Callable[[float], tuple[float, float]], seed: int
) -> None:
    chance = random.Random(seed)
    integral, at, taken = Integral(), 0.0, 0.0
    begin = source(0.0)[1]
    integral.add(0.0, source(0.0)[0])
    while at < 300:
        at += chance.uniform(0.6, 1.4)  # once a second, as a busy machine keeps it
        integral.add(at, source(at)[0])
        if chance.random() < 0.2:
            taken += integral.take()
    taken += integral.take()
    assert taken == pytest.approx(source(at)[1] - begin, rel=0.01)


def test_one_reading_is_no_energy_yet() -> None:
    integral = Integral()
    integral.add(3.0, 500.0)
    assert integral.take() == 0.0


@given(
    start=st.floats(0, RANGE, exclude_max=True),
    drawn=st.lists(st.floats(0, 0.99 * RANGE), min_size=1, max_size=50),
)
def test_a_counter_that_wraps_around_loses_nothing(start: float, drawn: list[float]) -> None:
    total = start
    counter = Counter("package-0", lambda: total % RANGE, RANGE)
    for joules in drawn:
        total += joules
        # What is left of a double after many rounds is far below a microjoule of the counter.
        assert counter.take() == pytest.approx(joules, abs=1e-6)


def test_a_counter_that_begins_anew_counts_from_there() -> None:
    shown = iter([900.0, 950.0, 30.0, 40.0])
    counter = Counter("gpu-0", lambda: next(shown))
    assert [counter.take() for _ in range(3)] == [50.0, 30.0, 10.0]


def _zone(folder: Path, zone: str, name: str, joules: float = 1.0) -> Path:
    path = folder / zone
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{round(RANGE * 1e6)}\n")
    (path / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
    return path / "energy_uj"


def test_the_kernels_counters_are_read_each_once(tmp_path: Path) -> None:
    """A folder as Linux shows it on a server with two processors; `psys` and cores are theirs."""
    package = _zone(tmp_path, "intel-rapl:0", "package-0", RANGE - 5)
    _zone(tmp_path, "intel-rapl:0:0", "core")
    memory = _zone(tmp_path, "intel-rapl:0:1", "dram")
    _zone(tmp_path, "intel-rapl:1", "package-1")
    _zone(tmp_path, "intel-rapl:2", "psys")
    _zone(tmp_path, "intel-rapl-mmio:0", "package-0")
    counters = processor_counters(tmp_path)
    assert [counter.name for counter in counters] == ["package-0", "dram-0", "package-1"]
    package.write_text(f"{7_000_000}\n")
    memory.write_text(f"{3_500_000}\n")
    assert [counter.take() for counter in counters] == pytest.approx([12, 2.5, 0], abs=1e-5)


def test_counters_that_nobody_may_read_are_told_from_no_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = _zone(tmp_path, "intel-rapl:0", "package-0")
    read = Path.read_text

    def refuse(self: Path) -> str:
        if self == secret:
            raise PermissionError(13, "Permission denied")
        return read(self)

    monkeypatch.setattr(Path, "read_text", refuse)  # root, as in CI, may read everything
    with pytest.raises(PermissionError):
        processor_counters(tmp_path)
    assert processor_counters(tmp_path / "nowhere") == []
