"""Estimates for people: layouts with their step breakdown, intervals and origins."""

from dataclasses import fields

from paceline.plan.calibration.calibrate import Fit, Steps
from paceline.plan.cost.memory import memory
from paceline.plan.cost.synchronization import extra_samples
from paceline.specs.measurements.profile import TrainingPrecision
from paceline.specs.plans.estimate import Amount, Estimate

MEMORY_SPREAD = 0.12
"""Relative error either way; 56 of 59 dense rows of Megatron's CI are within (docs/planning.md)."""


def estimates(found: Fit, steps: Steps, precision: TrainingPrecision) -> list[Estimate]:
    """Return the estimate of every layout in `steps`."""
    seconds, low, high = found.predict(steps)
    times = found.model(steps).times(steps.layouts, steps.batch)
    held = memory(steps.profile, steps.layouts, steps.batch, steps.engine)
    total = held.total
    origins = found.origin(steps)
    sync = steps.engine.sync
    samples = extra_samples(sync, steps.layouts.replicas)
    room = steps.cluster.device.memory_bytes
    return [
        Estimate(
            layout=steps.layouts.layout(index, precision),
            sync=sync,
            extra_samples=float(samples[index]),
            batch=int(steps.batch[index]),
            step_seconds=Amount(
                value=float(seconds[index]),
                low=float(low[index]),
                high=float(high[index]),
                origin=origins[index],
            ),
            seconds={each.name: float(getattr(times, each.name)[index]) for each in fields(times)},
            peak_bytes=Amount(
                value=float(total[index]),
                low=float(total[index] * (1 - MEMORY_SPREAD)),
                high=float(total[index] * (1 + MEMORY_SPREAD)),
                origin="assumed",
            ),
            bytes={each.name: float(getattr(held, each.name)[index]) for each in fields(held)},
            fits=bool(total[index] * (1 + MEMORY_SPREAD) <= room),
            flops_per_sample=steps.profile.flops or None,
            device_peak_flops=steps.cluster.device.peak_flops.get(precision),
        )
        for index in range(len(steps.layouts))
    ]
