"""The best layouts of a search, simulated event by event."""

import numpy as np

from paceline.cluster.collectives import Array
from paceline.plan.calibration.calibrate import Steps
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.compute import Passes
from paceline.plan.cost.layout_table import RECOMPUTE, Layouts
from paceline.plan.cost.pipeline_simulation import DRAWS, Pipeline, Simulated, simulate
from paceline.plan.cost.step_time import StepModel

BUCKETS = 10
"""Gradient buckets of a stage: as in the closed form, a tenth follows the last backward."""


def simulated(
    steps: Steps, numbers: Coefficients, draws: int = DRAWS, seed: int = 0
) -> list[Simulated]:
    """Simulate the step of every layout in `steps`; `numbers` has the spread of worker speeds."""
    return simulate(pipelines(steps, numbers), float(numbers.jitter), draws, seed)


def pipelines(steps: Steps, numbers: Coefficients) -> list[Pipeline]:
    """Return the durations of every layout's step, from the closed form.

    The simulation overlaps gradient all-reduces of replicas with compute. For shards, only the
    closed form does: their exposed communication follows the last backward.
    """
    layouts, batch, engine = steps.layouts, steps.batch, steps.engine
    model = _model(steps, numbers, engine.overlap_data)
    times = model.times(layouts, batch)
    whole = _model(steps, numbers, overlap=False).times(layouts, batch)
    passes = [model.compute.passes(each, layouts) for each in steps.profile.layers]
    every_micro_batches = layouts.micro_batches(batch)
    accumulation = model.accumulation_seconds(layouts, every_micro_batches)
    found = []
    for index in range(len(layouts)):
        one = np.array([index])
        chunks = int(layouts.chunks[index])
        micro_batches = int(every_micro_batches[index])
        # In the closed form, this communication follows the last backward: that of shards, and that
        # of synchronization modes whose replicas differ.
        follows = layouts.shards[index] > 1 or engine.sync.replicas_differ
        piped = layouts.pipeline[index] > 1
        # In the closed form, a worker hands its output over before it continues.
        handover = float(times.transfer[index]) / (2 * micro_batches * chunks)
        forward, backward = _stages(steps, layouts.take(one), [each.take(one) for each in passes])
        exposed = float(times.data[index]) if follows else 0.0
        found.append(
            Pipeline(
                schedule="interleaved" if chunks > 1 else "1f1b",
                micro_batches=micro_batches,
                forward_seconds=forward + handover,
                backward_seconds=backward + handover + float(accumulation[index]) / chunks,
                gradient_seconds=0.0 if follows else float(whole.data[index]) / chunks,
                buckets=BUCKETS,
                overlap=engine.overlap_data and (engine.overlap_piped or not piped),
                after_seconds=float(times.optimizer[index] + times.host[index]) + exposed,
                members=float(layouts.stage_workers[index] * layouts.tensor[index]),
            )
        )
    return found


def _model(steps: Steps, numbers: Coefficients, overlap: bool) -> StepModel:
    engine = steps.engine.model_copy(update={"overlap_data": overlap})
    return StepModel(steps.profile, steps.cluster, steps.precision, engine, numbers)


def _stages(steps: Steps, layout: Layouts, passes: list[Passes]) -> tuple[Array, Array]:
    """Return the seconds of forward and of backward, by worker and chunk."""
    workers, chunks = int(layout.pipeline[0]), int(layout.chunks[0])
    before, block, after = passes
    # Tensor-parallel all-reduces run in forward, in backward, and in the recomputation of a block.
    repeated = layout.recompute[0] == RECOMPUTE.index("block")
    blocks = _blocks(steps.profile.block.count, workers * chunks)
    ends = np.zeros((2, workers * chunks))
    ends[0, 0], ends[1, -1] = 1.0, 1.0

    def stages(of: list[float]) -> Array:
        seconds = blocks * of[1] + ends[0] * of[0] + ends[1] * of[2]
        return np.asarray(seconds.reshape(chunks, workers).T)

    forward = [
        float((each.forward + each.tensor / (3 if repeated else 2))[0])
        for each in (before, block, after)
    ]
    every = [float(each.all[0]) for each in (before, block, after)]
    return stages(forward), stages(every) - stages(forward)


def _blocks(count: int, stages: int) -> Array:
    """Return an even division; the last stage has one less, then the first, then those before
    the last."""
    missing = -count % stages
    blocks = np.full(stages, float(-(-count // stages)))
    order = [stages - 1, 0, *range(stages - 2, 0, -1)]
    blocks[order[:missing]] -= 1.0
    return blocks
