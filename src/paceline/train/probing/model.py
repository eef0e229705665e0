"""A user's model, timed on all devices at once: beside busy neighbours, as in training."""

import os
from pathlib import Path

from paceline.profile.timing import merged, with_times
from paceline.specs import Layout, ModelTimes, Profile, TrainingProfile
from paceline.train.devices import name_of
from paceline.train.groups import Groups
from paceline.train.measure import measured
from paceline.train.probing.exchange import shared
from paceline.train.rehearse.costs import profile_of
from paceline.train.rehearse.dry_run import training_of

BUDGET_SECONDS = 15.0
"""For one precision."""
PRECISIONS = ("fp32", "bf16")


def training_profile(
    file: Path, function: str, folder: Path, groups: Groups
) -> TrainingProfile | None:
    """The profile of a training, on worker 0; all workers call this together."""
    os.chdir(folder)
    training = training_of(file, function)
    profiles: dict[str, Profile] = {}
    for precision in PRECISIONS:
        layout = Layout.model_validate({"precision": precision})
        shared(groups, 0.0)  # all begin together
        own = measured(training, layout, device=groups.device, budget_seconds=BUDGET_SECONDS)
        times = [
            ModelTimes.model_validate_json(each)
            for each in groups.collected(f"times in {precision}", own.model_dump_json())
        ]
        if groups.place.rank == 0:
            counted = profile_of(training, file.name, layout)
            profiles[precision] = with_times(counted, merged(times), name_of(groups.device))
    if groups.place.rank:
        return None
    return TrainingProfile.model_validate(
        {
            "train": file.name,
            "function": function,
            "batch": training.batch,
            "steps": training.total_steps,
            "precisions": profiles,
        }
    )
