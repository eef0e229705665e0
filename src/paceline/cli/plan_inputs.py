"""What `paceline plan` is asked about: a cluster, numbers of nodes, a model and its batch."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from paceline.cli.console import say

if TYPE_CHECKING:
    from paceline.launch.target import Target
    from paceline.specs import Cluster, Profile, Sync, TrainingProfile
    from paceline.user.training import Training

Precision = Literal["fp32", "bf16", "fp16"]
DEFAULT_CLUSTER = Path("cluster.toml")
DEFAULT_PROFILE = Path("profile.toml")
MEASURE_SECONDS = 0.4
"""For timing the model in one precision."""


@dataclass(frozen=True)
class Wish:
    """What was said of the model on the command line."""

    train: str | None
    model: str | None
    profile: Path | None
    batch: int | None
    critical_batch: float | None
    steps: int | None
    precision: Precision | None
    measure: bool


@dataclass(frozen=True)
class Asked:
    """A model in each precision that may be chosen, and how it is to be trained."""

    profiles: "Mapping[Precision, Profile]"
    batch: int
    steps: int | None


def check_given(wish: Wish) -> None:
    """A plan is for a training or for a model by its dimensions, of which less is known."""
    from paceline.specs import PacelineError

    if (wish.train is None) == (wish.model is None):
        given = "neither was" if wish.train is None else "both were"
        raise PacelineError(
            f"a plan is for TRAIN or for --model; {given} given",
            fix='write `paceline plan train.py`, or `paceline plan --model "gpt: layers=12'
            ' width=768 heads=12 seq=1k vocab=50k"`',
        )
    ignored = {"--profile": wish.profile, "--critical-batch": wish.critical_batch}
    for name, value in ignored.items():
        if wish.model is not None and value is not None:
            raise PacelineError(
                f"{name} {value} was given, which is for a training of your own, with --model",
                fix=f"leave {name} out, or plan your training: paceline plan train.py",
            )


def asked_cluster(file: Path | None, device: str | None, nodes: str | None) -> "Cluster":
    """The cluster of a file, or of a device in the catalogue with its usual links."""
    from paceline.cluster.catalog import read_cluster, usual_cluster
    from paceline.specs import PacelineError
    from paceline.study.points import numbers

    if file is not None and device is not None:
        raise PacelineError(
            f"--cluster {file} and --device {device} both say what the cluster is",
            fix="give one of them",
        )
    if device is not None:
        if nodes is None:
            raise PacelineError(
                f"--device {device} does not say how many nodes there are",
                fix="add --nodes, such as --nodes 16, or a list: --nodes 1,4,16",
            )
        return usual_cluster(device, max(numbers("--nodes", nodes)))
    if file is None and not DEFAULT_CLUSTER.exists():
        raise PacelineError(
            "nothing says what the cluster is",
            fix="measure it with `paceline probe`, which writes cluster.toml; or give --cluster"
            " FILE, or --device NAME --nodes N",
        )
    return read_cluster(file or DEFAULT_CLUSTER)


def asked_counts(nodes: str | None, cluster: "Cluster") -> list[int]:
    """Numbers of nodes to look at: those given, else powers of two and all."""
    from paceline.plan.search.node_counts import node_counts
    from paceline.specs import PacelineError
    from paceline.study.points import numbers

    if nodes is None:
        return node_counts(cluster.nodes)
    counts = numbers("--nodes", nodes)
    if max(counts) > cluster.nodes:
        raise PacelineError(
            f"--nodes {max(counts)} was given, but the cluster has {cluster.nodes}",
            fix="give fewer, or write the nodes that it will have into the cluster's file",
        )
    return counts


def asked_sync(text: str | None) -> "Sync | None":
    """How replicas are to agree; None where the planner is to choose."""
    from paceline.specs import Sync

    sync = Sync.parse(text) if text is not None else None
    return None if sync is None or sync.mode == "auto" else sync


def asked_model(wish: Wish, cluster: "Cluster", *, show: bool) -> Asked:
    """The user's own training, or a model given by its dimensions."""
    from paceline.specs import PacelineError

    precisions = _precisions(cluster, wish.precision, both=wish.model is None)
    if wish.model is None:
        return _of_training(wish, cluster, precisions, show=show)
    if wish.batch is None:
        raise PacelineError(
            "--model does not say how many samples a step has",
            fix="add --batch N: the global batch, over all workers",
        )
    from paceline.profile.named_models import profile_of

    return Asked({precisions[0]: profile_of(wish.model)}, wish.batch, wish.steps)


def _precisions(cluster: "Cluster", asked: Precision | None, *, both: bool) -> Sequence[Precision]:
    """Of the device, one with 16 bits and fp32; models by dimensions have 16 bits only."""
    from paceline.specs import PacelineError

    has = cluster.device.peak_flops
    if asked is not None:
        cluster.device.peak(asked)  # refuses what it does not have
        if asked == "fp32" and not both:
            raise PacelineError(
                "--precision fp32 was given, but models by their dimensions are planned in 16 bits",
                fix="leave --precision out, or plan your own training: paceline plan train.py",
            )
        return [asked]
    sixteen: tuple[Precision, ...] = ("bf16", "fp16")
    half = [each for each in sixteen if each in has][:1]
    return [*half, "fp32"] if both or not half else half


def _of_training(
    wish: Wish, cluster: "Cluster", precisions: Sequence[Precision], *, show: bool
) -> Asked:
    from paceline.cli.progress import progress
    from paceline.launch.target import Target

    assert wish.train is not None
    target = Target.parse(wish.train)
    timed = _timed_profile(wish.profile, target, cluster)
    if timed is not None:
        say(f"times of the model: {wish.profile or DEFAULT_PROFILE}", unless=not show)
        has = {each: timed.precisions[each] for each in precisions if each in timed.precisions}
        return _asked(wish, has or timed.precisions, timed.batch, timed.steps)
    with progress("profile", show=show) as advance:
        training = training_at(target)
        profiles: dict[Precision, Profile] = {}
        for number, each in enumerate(precisions):
            profiles[each] = _profile(training, target, each, cluster, measure=wish.measure)
            advance((number + 1) / len(precisions))
    return _asked(wish, profiles, training.batch, training.total_steps)


def _asked(
    wish: Wish, profiles: "Mapping[Precision, Profile]", own_batch: int, own_steps: int
) -> Asked:
    """With the batch that was wished for, and as many steps of it as learn the same."""
    from paceline.plan.sample_efficiency import steps_with

    batch = wish.batch or own_batch
    steps = wish.steps or steps_with(batch, own_batch, own_steps, wish.critical_batch)
    return Asked(profiles, batch, steps)


def _timed_profile(
    file: Path | None, target: "Target", cluster: "Cluster"
) -> "TrainingProfile | None":
    """What `paceline probe TRAIN` has measured of this training on such devices, if it has."""
    from paceline.specs import PacelineError, TrainingProfile

    if file is None and not DEFAULT_PROFILE.exists():
        return None
    found = TrainingProfile.read(file or DEFAULT_PROFILE)
    has = {f"{found.train}:{found.function} on {each.measured_on}" for each in found.profiles}
    wanted = f"{target.file.name}:{target.function} on {cluster.device.name}"
    if has == {wanted}:
        return found
    if file is None:
        return None
    raise PacelineError(
        f"{file} has the times of {', '.join(sorted(has))}, not of {wanted}",
        fix=f"measure it there with `paceline probe {target.file.name}`, or leave --profile out",
    )


def profile_on(target: "Target", precision: Precision, cluster: "Cluster") -> "Profile":
    """The profile of a training, timed if this machine has the cluster's device."""
    return _profile(training_at(target), target, precision, cluster, measure=True)


@cache
def training_at(target: "Target") -> "Training":
    """What the user's function returns, asked once."""
    from paceline.comm.torch_loading import load_torch

    load_torch()
    from paceline.user.script import training_of

    with redirect_stdout(sys.stderr):  # what the user's code prints is not the result
        return training_of(target.file, target.function)


def _profile(
    training: "Training",
    target: "Target",
    precision: Precision,
    cluster: "Cluster",
    *,
    measure: bool,
) -> "Profile":
    from paceline.comm.devices import name_of, pick_device
    from paceline.parallel.dry_run.model_profile import profile_of
    from paceline.parallel.measured_model import measured
    from paceline.profile.timing import with_times
    from paceline.specs import Layout, Placement

    layout = Layout(precision=precision)
    with redirect_stdout(sys.stderr):
        counted = profile_of(training, target.file.name, layout)
        device = pick_device(Placement())
        cores = cluster.device.units if device.type == "cpu" else None
        if not measure or name_of(device, cores) != cluster.device.name:
            return counted
        times = measured(
            training, layout, device=device, threads=cores, budget_seconds=MEASURE_SECONDS
        )
        return with_times(counted, times, cluster.device.name)
