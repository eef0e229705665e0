"""`paceline plan --calibrate RUN`: what runs have shown of a cluster."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from paceline.cli.console import say

if TYPE_CHECKING:
    from paceline.launch.target import Target
    from paceline.plan.calibration.calibrate import Fit
    from paceline.plan.calibration.measured_runs import Ran
    from paceline.specs import Cluster, FittedNumber, Profile

    Profiles = dict[tuple[Target, str], Profile]

MARK = "# fitted to runs by paceline plan --calibrate; remove what follows to forget it"


def learned(runs: Sequence[Path], cluster: "Cluster", file: Path | None, *, quiet: bool) -> "Fit":
    """What is believed of the cluster's numbers, after a look at some runs."""
    from paceline.plan.calibration.belief import guesses_for
    from paceline.plan.calibration.calibrate import fit, guess
    from paceline.plan.calibration.measured_runs import fitted_numbers, rows

    guesses = guesses_for(cluster)
    if not runs:
        return guess(guesses)
    profiles: Profiles = {}
    measured = rows([_ran(path, cluster, profiles) for path in runs], cluster)
    found = fit(measured, guesses)
    if file is not None:
        numbers = fitted_numbers(found)
        write_numbers(file, numbers)
        shown = [
            name
            for name, origin in zip(numbers, found.origins, strict=True)
            if origin == "measured"
        ]
        say(f"{file}: {len(runs)} runs have shown {', '.join(shown) or 'little'}", unless=quiet)
    return found


def _ran(path: Path, cluster: "Cluster", profiles: "Profiles") -> "Ran":
    """A run that has taken steps, with the profile of what it trained."""
    from paceline.cli.plan_inputs import profile_on
    from paceline.launch.target import Target
    from paceline.plan.calibration.measured_runs import Ran
    from paceline.report import RunReader, summary
    from paceline.specs import PacelineError, Run

    run = Run.open(path)
    state = RunReader(run).refresh()
    figures = summary(state)
    train = run.job.train
    if train is None or figures.median_step_seconds is None or figures.batch is None:
        raise PacelineError(
            f"{path} has no steps to learn from", fix="give runs that have trained for a while"
        )
    layout, sync = run.plan.layout, run.plan.sync
    # The first step has all that happens once.
    average = fmean(state.seconds[1:] or state.seconds)
    key = Target(train, run.job.function), layout.precision
    if key not in profiles:
        profiles[key] = profile_on(*key, cluster)
    return Ran(
        profile=profiles[key],
        layout=layout,
        nodes=figures.nodes,
        devices_per_node=figures.workers // figures.nodes,
        batch=figures.batch,
        step_seconds=average if sync.replicas_differ else figures.median_step_seconds,
        sync=sync,
    )


def write_numbers(file: Path, numbers: "dict[str, FittedNumber]") -> None:
    """Put the numbers at the end of the cluster's file; what a person wrote stays as it is."""
    before = file.read_text().partition(MARK)[0].rstrip()
    lines = [
        f"{name} = {{ value = {each.value:.6g}, spread = {each.spread:.3g} }}"
        for name, each in numbers.items()
    ]
    file.write_text("\n".join([before, "", MARK, "[numbers]", *lines, ""]))
