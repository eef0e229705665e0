"""Profiles of the user's training: counted, and timed if this machine has the device."""

import sys
from contextlib import redirect_stdout
from functools import cache
from typing import TYPE_CHECKING

from paceline.launch.target import Target
from paceline.specs import Cluster, Layout, Placement, Profile
from paceline.specs.measurements.profile import TrainingPrecision, UncountedScale

if TYPE_CHECKING:
    from paceline.user.training import Training

MEASURE_SECONDS = 0.4
"""Time budget for timing the model in one precision."""

TRAINED_BYTES = 16
"""Bytes of a parameter in training: itself, its gradient, and some for activations."""

MEMORY_BOUND = 0.5
"""Fraction of a device's memory bandwidth from which on operators are taken to wait for memory."""

_TIMING_FIX = "see that it trains: `paceline run TRAIN -n 1`; or plan without timing it: --count"


@cache
def load_training(target: Target) -> "Training":
    """Return the result of the user's function; call it once per process."""
    from paceline.comm.torch_loading import load_torch, loading  # noqa: PLC0415

    load_torch(compiler=False)
    from paceline.user.script import training_of  # noqa: PLC0415

    with redirect_stdout(sys.stderr), loading():  # standard output is for results
        return training_of(target.file, target.function, target.arguments)


class TrainingProfiles:
    """Profiles of trainings for one cluster; each is made once.

    `measure`: time a training if this machine has the cluster's device; else count its operations.
    """

    def __init__(self, cluster: Cluster, *, measure: bool = True) -> None:
        self._cluster, self._measure = cluster, measure
        self._found: dict[tuple[Target, TrainingPrecision], Profile] = {}

    def of(self, target: Target, precision: TrainingPrecision) -> Profile:
        """Return the profile of a training in one precision."""
        key = target, precision
        if key not in self._found:
            self._found[key] = self._profile(target, Layout(precision=precision))
        return self._found[key]

    def _profile(self, target: Target, layout: Layout) -> Profile:
        training = load_training(target)
        from paceline.comm.device_kind import device_kind  # noqa: PLC0415
        from paceline.parallel.dry_run.model_profile import profile_of  # noqa: PLC0415
        from paceline.parallel.measured_model import measured, uncounted_measured  # noqa: PLC0415
        from paceline.profile.timing import with_times, with_uncounted  # noqa: PLC0415
        from paceline.user.mistakes import users_code  # noqa: PLC0415

        known = self._cluster.device
        with redirect_stdout(sys.stderr):
            counted = profile_of(training, target.file.name, layout)
            device = device_kind().bind(Placement())
            cores = known.units if device.type == known.kind == "cpu" else None
            if not self._measure:
                return counted
            here = device_kind().title(device, cores)
            if here != known.name and not counted.uncounted_operators:
                return counted
            if here != known.name:
                room = device_kind().memory_bytes(device, Placement())
                if counted.parameters * TRAINED_BYTES > room:
                    return counted
                names = ", ".join(counted.uncounted_operators)
                with users_code(f"timing {names} on this machine", fix=_TIMING_FIX):
                    found, rates = uncounted_measured(
                        training, layout, device=device, budget_seconds=MEASURE_SECONDS
                    )
                by: UncountedScale = "matrix product rates"
                scale = rates.matmul_flops / known.matmul_rate(layout.precision)
                if found.bytes_per_second > MEMORY_BOUND * rates.memory_bytes_per_second:
                    by = "memory bandwidths"
                    scale = rates.memory_bytes_per_second / known.memory_bytes_per_second
                return with_uncounted(counted, found.times, here, scale, by)
            with users_code("timing the training on this machine", fix=_TIMING_FIX):
                times = measured(
                    training, layout, device=device, threads=cores, budget_seconds=MEASURE_SECONDS
                )
            return with_times(counted, times, known.name)
