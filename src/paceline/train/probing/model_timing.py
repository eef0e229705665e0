"""Timing of a user's model on all devices at once, so that neighbors are busy as in training."""

import os
from pathlib import Path

from paceline.comm.device_kind import device_kind
from paceline.comm.groups import Groups
from paceline.parallel.dry_run.model_profile import profile_of
from paceline.parallel.measured_model import measured
from paceline.profile.timing import merged, with_times
from paceline.specs import Layout, ModelTimes, Profile, TrainingProfile
from paceline.train.probing.collective_timing import shared
from paceline.user.script import training_of

BUDGET_SECONDS = 15.0
"""Time budget for one precision."""
PRECISIONS = ("fp32", "bf16")


def training_profile(
    file: Path, function: str, arguments: tuple[str, ...], folder: Path, groups: Groups
) -> TrainingProfile | None:
    """Measure a training; worker 0 returns its profile. All workers call this together."""
    os.chdir(folder)
    training = training_of(file, function, arguments)
    profiles: dict[str, Profile] = {}
    for precision in PRECISIONS:
        layout = Layout.model_validate({"precision": precision})
        shared(groups, 0.0)  # a barrier: all begin together
        own = measured(training, layout, device=groups.device, budget_seconds=BUDGET_SECONDS)
        times = [
            ModelTimes.model_validate_json(each)
            for each in groups.collect(f"times in {precision}", own.model_dump_json())
        ]
        if groups.placement.rank == 0:
            counted = profile_of(training, file.name, layout)
            profiles[precision] = with_times(
                counted, merged(times), device_kind().title(groups.device)
            )
    if groups.placement.rank:
        return None
    return TrainingProfile.model_validate(
        {
            "train": file.name,
            "function": function,
            "batch": training.largest_batch,
            "steps": training.steps_in_plans,
            "precisions": profiles,
        }
    )
