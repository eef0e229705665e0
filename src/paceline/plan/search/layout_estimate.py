"""Estimates for people: layouts with their step breakdown, intervals and origins."""

from dataclasses import fields

from paceline.plan.calibration.calibrate import Fit, Steps
from paceline.plan.cost.memory import memory
from paceline.plan.cost.synchronization import extra_samples
from paceline.specs.measurements.profile import TrainingPrecision
from paceline.specs.plans.estimate import Amount, Estimate


def estimates(found: Fit, steps: Steps, precision: TrainingPrecision) -> list[Estimate]:
    """Return the estimate of every layout in `steps`."""
    seconds, low, high = found.predict(steps)
    times = found.model(steps).times(steps.layouts, steps.batch)
    as_measured = seconds / times.total  # 1, but for layouts that ran
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
            seconds={
                each.name: float(as_measured[index] * getattr(times, each.name)[index])
                for each in fields(times)
            },
            peak_bytes=Amount(
                value=float(total[index]),
                low=float(total[index] * steps.engine.memory_low),
                high=float(total[index] * steps.engine.memory_high),
                origin="assumed",
            ),
            bytes={each.name: float(getattr(held, each.name)[index]) for each in fields(held)},
            fits=bool(total[index] * steps.engine.memory_high <= room),
            flops_per_sample=steps.profile.flops or None,
            device_peak_flops=steps.cluster.device.peak_flops.get(precision),
        )
        for index in range(len(steps.layouts))
    ]
