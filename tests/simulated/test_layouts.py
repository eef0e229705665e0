"""Every layout on simulated devices and `simccl` follows one process on the CPU.

Failed before: a pipeline's first stages kept their losses on the CPU, and a tied weight was untied.
Local steps that overlap communication hung: two threads started collectives of two communicators.
Parameter servers, which communicate by Gloo, did not start.
"""

from pathlib import Path
from typing import Any

import pytest

from layouts.models import trained
from layouts.test_layouts import LAYOUTS
from paceline.specs import Faults, Layout, SyncSettings
from ranks import new_run, run_ranks
from simulated_devices import run_sim_ranks

pytestmark = pytest.mark.slow

MOST_WORKERS = 4
"""More take minutes on two cores."""

QUICK = {
    "2 shards, micro-batches",
    "2 replicas x 2 shards",
    "2 x 2 stages, interleaved",
    "2 slices x 2 shards",
}
"""Replicas alone are in test_lost_worker.py."""
QUICK_STEPS = 4


def result(layout: Layout, folder: Path, words: str = "allreduce", **changes: Any) -> Any:
    """What comes out on simulated devices, or on the CPU."""
    folder.mkdir(exist_ok=True)
    # On a busy machine, a late worker must not be taken for a lost one.
    run = new_run(folder, layout.workers, layout, faults=Faults(regroup=False))
    run.plan.model_copy(update={"sync": SyncSettings.parse(words)}).write(run.plan_file)
    starts = run_ranks if changes.pop("cpu", False) else run_sim_ranks
    arguments = ("gpt", str(folder), changes)
    return starts(trained, layout.workers, folder, *arguments, run=run, seconds=200)[0]


def assert_same(found: Any, expected: Any) -> None:
    assert found["losses"] == pytest.approx(expected["losses"], abs=1e-5)
    assert found["weights"] == pytest.approx(expected["weights"], abs=1e-5)
    assert found["evaluation"].loss == pytest.approx(expected["evaluation"].loss, abs=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """What one process on the CPU finds, by the number of steps."""
    return {
        steps: result(Layout(), tmp_path_factory.mktemp("alone"), cpu=True, steps=steps)
        for steps in (QUICK_STEPS, 20)
    }


@pytest.mark.parametrize("name", sorted(QUICK))
def test_it_follows_one_process(name: str, alone: dict[int, Any], tmp_path: Path) -> None:
    assert_same(result(LAYOUTS[name], tmp_path, steps=QUICK_STEPS), alone[QUICK_STEPS])


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(replicas=2), "diloco:every=2,overlap=1"),
        (Layout(replicas=2), "stale:staleness=0"),
        *(
            pytest.param(layout, words, marks=pytest.mark.nightly)
            for layout in (Layout(replicas=2, shards=2), Layout(replicas=2, tensor=2))
            for words in ("diloco:every=2,fragments=2,overlap=1", "local:every=2")
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else f"{each.workers} workers",
)
def test_synchronization_is_that_of_gloo(layout: Layout, words: str, tmp_path: Path) -> None:
    expected = result(layout, tmp_path / "gloo", words, cpu=True, steps=QUICK_STEPS)
    found = result(layout, tmp_path / "simccl", words, steps=QUICK_STEPS)
    assert_same(found, expected)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", [name for name, layout in LAYOUTS.items() if layout.workers <= MOST_WORKERS]
)
def test_20_steps_follow_one_process(name: str, alone: dict[int, Any], tmp_path: Path) -> None:
    assert_same(result(LAYOUTS[name], tmp_path, steps=20), alone[20])
