"""Models larger than a simulated device, under shards, tensor parallelism and a pipeline.

Failed before: after the trial, a pipeline stage held the weights of all stages before it.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from paceline.parallel.dry_run.dry_run import dry_run
from paceline.parallel.dry_run.model_profile import profile_of
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.memory import memory
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.specs import Faults, Layout, Run, Saving
from plan.shapes import cluster
from ranks import new_run, run_ranks
from simulated.large_models import Size, Stack, Trained, train, training_of
from simulated_devices import run_sim_ranks

pytestmark = pytest.mark.slow

SMALL = Size(width=128, blocks=32, batch=8)
"""8 MB of weights, on 4 devices of 6 MB."""
SMALL_WORKERS, SMALL_DEVICE_BYTES = 4, 6 * 2**20

LARGE = Size(width=720, blocks=128, batch=20)
"""1.06 GB of weights, on 10 devices of 256 MB."""
LARGE_WORKERS, LARGE_DEVICE_BYTES = 10, 256 * 2**20

WAYS = ["shards", "tensor", "pipeline"]


def planned(folder: Path, layout: Layout) -> Run:
    folder.mkdir(exist_ok=True)
    saving = Saving(every_steps=100)
    return new_run(folder, layout.workers, layout, saving, Faults(regroup=False))


def on_small_devices(folder: Path, layout: Layout, *arguments: Any) -> list[Trained]:
    return run_sim_ranks(
        _train,
        layout.workers,
        folder,
        *arguments,
        run=planned(folder, layout),
        limit_bytes=SMALL_DEVICE_BYTES,
        seconds=200,
    )


def _train(compare: bool, pretrained: Path | None) -> Trained:
    return train(SMALL, compare=compare, pretrained=pretrained)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of one process on the CPU."""
    found: list[Trained] = run_ranks(train, 1, tmp_path_factory.mktemp("alone"), SMALL)
    return found[0].losses


@pytest.mark.parametrize(
    "way", ["shards", *(pytest.param(way, marks=pytest.mark.nightly) for way in WAYS[1:])]
)
def test_it_trains_where_no_device_can_hold_it(
    way: str, alone: list[float], tmp_path: Path
) -> None:
    layout = Layout(**{way: SMALL_WORKERS})
    found = on_small_devices(tmp_path, layout, True, None)
    assert [each.differ for each in found] == [[]] * layout.workers
    assert found[0].losses == pytest.approx(alone, abs=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_a_pretrained_file_is_read_into_parts(way: str, alone: list[float], tmp_path: Path) -> None:
    torch.manual_seed(training_of(SMALL).seed)
    save_file(Stack(SMALL).state_dict(), path := tmp_path / "model.safetensors")
    layout = Layout(**{way: SMALL_WORKERS})
    found = on_small_devices(tmp_path, layout, False, path)
    assert found[0].losses == pytest.approx(alone, abs=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_is_read_into_parts(way: str, tmp_path: Path) -> None:
    layout = Layout(**{way: SMALL_WORKERS})
    run = planned(tmp_path, layout)
    losses: list[float] = []
    for start, steps in enumerate((2, 4)):
        run.job.model_copy(update={"first_generation": start}).write(run.job_file)
        found: list[Trained] = run_sim_ranks(
            train,
            layout.workers,
            tmp_path,
            *(SMALL, steps),
            run=run,
            limit_bytes=SMALL_DEVICE_BYTES,
            seconds=200,
        )
        losses = found[0].losses
    through: list[Trained] = run_ranks(train, 1, tmp_path / "alone", SMALL, 4)
    assert losses == pytest.approx(through[0].losses, abs=1e-5)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", WAYS)
def test_1_gb_of_weights_on_devices_of_256_mb(way: str, tmp_path: Path) -> None:
    """Reports each figure beside the dry run's and the planner's."""
    local = LARGE.batch // LARGE_WORKERS if way == "shards" else LARGE.batch
    layout = Layout(**{way: LARGE_WORKERS}, micro_batch=1 if way == "pipeline" else local)
    found: list[Trained] = run_sim_ranks(
        train,
        layout.workers,
        tmp_path,
        *(LARGE, 1),
        run=planned(tmp_path, layout),
        limit_bytes=LARGE_DEVICE_BYTES,
        seconds=3000,
    )
    measured = max(each.step_bytes for each in found)
    training = training_of(LARGE)
    dry = dry_run(training, layout, devices_per_node=layout.workers)
    profile = profile_of(training, "stack", layout)
    engine = PACELINE.engine(profile, cluster(), layout.precision)
    plan = memory(profile, Layouts.of([layout], LARGE.batch), float(LARGE.batch), engine).total[0]
    held = max(each.memory.peak for each in dry.ranks)
    print(f"{way}: device {measured:,} B, dry run {held:,} B, plan {plan:,.0f} B")
    assert measured == pytest.approx(held, rel=0.15)
    assert measured == pytest.approx(plan, rel=0.15)
