"""Every layout follows the trajectory of one process."""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import paceline
from layouts.models import MODELS, SAMPLES, STEPS, trained, training_of
from paceline.schedulers.task_placement import placement
from paceline.specs import Layout
from ranks import RankFailed, run_ranks
from train.trainings import classification

pytestmark = pytest.mark.slow

LAYOUTS = {
    "micro-batches": Layout(micro_batch=5),
    "recompute blocks": Layout(recompute="block"),
    "recompute selectively": Layout(recompute="selective", micro_batch=7),
    "2 replicas": Layout(replicas=2),
    "3 replicas": Layout(replicas=3),
    "4 replicas, micro-batches": Layout(replicas=4, micro_batch=4),
    "2 replicas, recompute": Layout(replicas=2, recompute="block", micro_batch=5),
    "2 replicas, small buckets": Layout(replicas=2, bucket_megabytes=1),
    "2 replicas of unequal speed": Layout(replicas=2, speeds=(1.0, 2.0)),
    "3 shards of unequal speed, micro-batches": Layout(
        shards=3, speeds=(5.0, 1.0, 2.0), micro_batch=4
    ),
    "2 shards": Layout(shards=2),
    "3 shards": Layout(shards=3),
    "4 shards": Layout(shards=4),
    "2 shards, gathered once": Layout(shards=2, reshard=False),
    "2 shards, micro-batches": Layout(shards=2, micro_batch=5),
    "2 shards, recompute": Layout(shards=2, recompute="block"),
    "3 shards, recompute selectively": Layout(shards=3, recompute="selective"),
    "2 replicas x 2 shards": Layout(replicas=2, shards=2),
    "2 x 2, micro-batches, recompute": Layout(
        replicas=2, shards=2, micro_batch=3, recompute="block"
    ),
    "2 replicas x 4 shards": Layout(replicas=2, shards=4),
    "2 stages": Layout(pipeline=2),
    "2 stages, gpipe, recompute": Layout(pipeline=2, schedule="gpipe", recompute="block"),
    "3 stages, small micro-batches": Layout(pipeline=3, micro_batch=3),
    "4 stages": Layout(pipeline=4),
    "2 x 2 stages, interleaved": Layout(pipeline=2, schedule="interleaved", micro_batch=7),
    "2 x 2 stages, zero-bubble": Layout(pipeline=2, schedule="zero-bubble", recompute="block"),
    "2 stages x 2 replicas": Layout(pipeline=2, replicas=2),
    "2 stages x 2 replicas, zero-bubble": Layout(
        pipeline=2, replicas=2, schedule="zero-bubble", micro_batch=4
    ),
    "2 stages x 2 shards": Layout(pipeline=2, shards=2),
    "2 stages x 2 shards, interleaved": Layout(
        pipeline=2, shards=2, schedule="interleaved", reshard=False
    ),
    "2 stages x 2 replicas x 2 shards": Layout(pipeline=2, replicas=2, shards=2),
    "2 slices": Layout(tensor=2),
    "4 slices": Layout(tensor=4),
    "2 slices, divided sequence, micro-batches": Layout(tensor=2, sequence=True, micro_batch=5),
    "2 slices x 2 replicas": Layout(tensor=2, replicas=2),
    "2 slices x 2 shards": Layout(tensor=2, shards=2, recompute="block"),
    "2 stages x 2 slices": Layout(pipeline=2, tensor=2),
    "2 stages x 2 slices x 2 replicas": Layout(pipeline=2, tensor=2, replicas=2),
    "2 stages x 2 slices x 2 shards": Layout(
        pipeline=2, tensor=2, shards=2, schedule="interleaved"
    ),
}

QUICK = {
    "micro-batches",
    "recompute selectively",
    "4 replicas, micro-batches",
    "2 replicas of unequal speed",
    "3 shards of unequal speed, micro-batches",
    "2 shards, micro-batches",
    "2 x 2, micro-batches, recompute",
    "3 stages, small micro-batches",
    "2 x 2 stages, interleaved",
    "2 slices x 2 shards",
}
"""Together they have nearly every field and mixture of two; the others are tried nightly."""
QUICK_FOR_EVERY_MODEL = {"2 replicas of unequal speed", "2 x 2 stages, interleaved"}
"""The other quick ones are tried with the first model only, but nightly."""


def _case(name: str, model: str) -> Any:
    quick = name in (QUICK if model == "gpt" else QUICK_FOR_EVERY_MODEL)
    return pytest.param(
        name, model, marks=[] if quick else pytest.mark.nightly, id=f"{name}-{model}"
    )


def result(model: str, layout: Layout, folder: Path, **changes: Any) -> dict[str, Any]:
    arguments = (model, str(folder), changes)
    found: dict[str, Any] = run_ranks(
        trained, layout.workers, folder, *arguments, layout=layout, seconds=100
    )[0]
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return {model: result(model, Layout(), tmp_path_factory.mktemp("alone")) for model in MODELS}


@pytest.mark.parametrize(
    ("name", "model"), [_case(name, model) for name in LAYOUTS for model in MODELS]
)
def test_it_follows_one_process(
    name: str, model: str, alone: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    layout, expected = LAYOUTS[name], alone[model]
    if model == "batch-norm":
        layout = layout.model_copy(update={"batch_norm": "synchronized"})
        if layout.micro_batch or layout.pipeline > 1:
            with pytest.raises(RankFailed, match="the first cannot use the statistics of the last"):
                result(model, layout, tmp_path)
            return
    found = result(model, layout, tmp_path)
    assert len(found["losses"]) == STEPS
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4)
    assert found["weights"] == pytest.approx(expected["weights"], rel=1e-4, abs=1e-5)
    assert found["evaluation"].samples == SAMPLES
    assert found["evaluation"].loss == pytest.approx(expected["evaluation"].loss, rel=1e-4)
    assert found["evaluation"].metrics == pytest.approx(expected["evaluation"].metrics, rel=1e-4)
    assert Layout(**json.loads(found["settings"])["layout"]) == layout


LOWER = [Layout(replicas=2), Layout(shards=2), Layout(replicas=2, shards=2, micro_batch=4)]


@pytest.fixture(scope="module", params=["bf16", "fp16"])
def alone_in(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any]]:
    layout = Layout(precision=request.param)
    return request.param, result("gpt", layout, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(LOWER[0], marks=pytest.mark.nightly, id="replicas"),
        pytest.param(LOWER[1], marks=pytest.mark.nightly, id="shards"),
        pytest.param(LOWER[2], id="both"),
    ],
)
def test_lower_precision_follows_one_process_in_it(
    layout: Layout, alone_in: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    precision, expected = alone_in
    found = result("gpt", layout.model_copy(update={"precision": precision}), tmp_path)
    assert found["losses"] == pytest.approx(expected["losses"], rel=0.02)
    assert found["losses"][-1] < found["losses"][0]


def test_bf16_follows_fp32_and_is_not_it(alone: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    found = result("gpt", Layout(precision="bf16"), tmp_path)
    assert found["losses"] == pytest.approx(alone["gpt"]["losses"], rel=0.03)
    assert found["losses"] != pytest.approx(alone["gpt"]["losses"], rel=1e-5)


def overflow_on_one_worker() -> tuple[float, float, bool]:
    """The scale before and after a step in which only worker 1's shard overflowed; was it taken?"""
    with paceline.start(training_of("cnn")) as trainer:
        stepper, batch = trainer._stepper, next(trainer._stepper.loaded(0))
        stepper.forward_and_backward(batch, 1)
        weights: list[Any] = [each.detach().clone() for each in trainer.model.parameters()]
        before = stepper.updates[0].scaling.scale
        if placement().rank == 1:
            gradient: Any = next(trainer.model.parameters()).grad
            gradient.to_local().fill_(float("inf"))
        stepper.update(1)
        after = stepper.updates[0].scaling.scale
        same = all(
            torch.equal(old.to_local(), new.to_local())  # type: ignore[attr-defined]
            for old, new in zip(weights, trainer.model.parameters(), strict=True)
        )
        return before, after, same


def test_shards_agree_on_whether_a_step_overflowed(tmp_path: Path) -> None:
    layout = Layout(shards=2, precision="fp16")
    found = run_ranks(overflow_on_one_worker, 2, tmp_path, layout=layout)
    for before, after, weights_are_as_before in found:
        assert after < before
        assert weights_are_as_before


SECONDS_PER_SAMPLE = {0: 0.02, 1: 0.01}


def slowly() -> float:
    """Train a tiny model, each worker at its speed; the seconds of the median step."""

    def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        time.sleep(len(target) * SECONDS_PER_SAMPLE[placement().rank])
        return torch.nn.functional.cross_entropy(logits, target)

    with paceline.start(classification(240, loss=loss, batch=60, steps=8)) as trainer:
        begin, seconds = time.perf_counter(), []
        for batch in trainer:
            trainer.step(batch)
            seconds.append(time.perf_counter() - begin)
            begin = time.perf_counter()
    return statistics.median(seconds)


@pytest.mark.alone
def test_work_divided_by_speed_is_as_much_faster_as_it_should_be(tmp_path: Path) -> None:
    """Speeds 1 : 2. Evenly the slower one takes 30 samples, by speed 20: 1.5 times faster."""
    even = max(run_ranks(slowly, 2, tmp_path / "even"))
    layout = Layout(replicas=2, speeds=(1.0, 2.0))
    by_speed = max(run_ranks(slowly, 2, tmp_path / "by-speed", layout=layout))
    print(f"even {even:.3f} s, by speed {by_speed:.3f} s: {even / by_speed:.2f} times faster")
    assert even / by_speed == pytest.approx(1.5, rel=0.1)


def test_speeds_that_fit_neither_nodes_nor_workers(tmp_path: Path) -> None:
    layout = Layout(replicas=2, speeds=(1.0, 2.0, 3.0))
    with pytest.raises(RankFailed, match="3 speeds, but the run has 1 nodes and 2 workers"):
        run_ranks(slowly, 2, tmp_path, layout=layout)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_compiled_model_follows_one_process(
    replicas: int, alone: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    layout = Layout(replicas=replicas, compile=True)
    found = run_ranks(
        trained, replicas, tmp_path, "gpt", str(tmp_path), {}, layout=layout, seconds=400
    )[0]
    assert found["losses"] == pytest.approx(alone["gpt"]["losses"], rel=1e-4)
