"""The planner's inputs: a cluster, numbers of nodes, and a model with its batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.cluster.catalog import read_cluster, usual_cluster
from paceline.launch.target import Target
from paceline.plan.cost.engine_kind import ENGINES
from paceline.plan.search.node_counts import Goal, node_counts
from paceline.plan.training_length import TrainingLength
from paceline.plan.training_profiles import TrainingProfiles, load_training
from paceline.profile.named_models import profile_of
from paceline.specs import (
    Cluster,
    CriticalBatch,
    PacelineError,
    Prices,
    Profile,
    TrainingProfile,
)
from paceline.specs.measurements.profile import TrainingPrecision as Precision

DEFAULT_CLUSTER = Path("cluster.toml")
DEFAULT_PROFILE = Path("profile.toml")
PACELINE = "paceline"
"""The engine that runs what is planned; plans for others have their settings."""

_MOST = {
    "--nodes": 10**6,
    "--batch": 2**40,
    "--critical-batch": 2**40,
    "--steps": 10**12,
    "--budget": 10**15,
    "--deadline": 10**12,
    "--time": 10**12,
}
"""Largest values of options, in seconds for times: beyond any training, and exact as floats."""
MOST_TIMES_CRITICAL = 4
"""Largest batch of the search over the critical one: it needs five times the fewest samples."""


@dataclass(frozen=True)
class PlanRequest:
    """A planning request: a training or a model, a cluster, a goal and limits."""

    train: Target | None = None
    model: str | None = None
    """A model by its dimensions or by its name, instead of `train`."""
    profile: Path | None = None
    """Times of the training, measured by `paceline probe TRAIN`."""
    cluster: Path | None = None
    device: str | None = None
    """A device of the catalog, instead of `cluster`."""
    nodes: tuple[int, ...] | None = None
    """Numbers of nodes to consider."""
    batch: tuple[int, ...] | Literal["best"] | None = None
    """Batches to consider; the training's own by default."""
    critical_batch: CriticalBatch | None = None
    steps: int | None = None
    goal: Goal = "knee"
    deadline_seconds: float | None = None
    budget: float | None = None
    slot_seconds: float | None = None
    """Time limit of a job."""
    precision: Precision | None = None
    sync: str | None = None
    """A synchronization mode with its settings; None: the planner chooses."""
    engine: str = PACELINE
    """The training engine to plan for."""
    prices: Prices | None = None
    """What a node costs; None: as the cluster's file says."""
    measure: bool = True
    """Time the training here if this machine has the cluster's device."""

    @property
    def compares_batches(self) -> bool:
        """Whether the batch is to be chosen."""
        return self.batch is not None and (self.batch == "best" or len(self.batch) > 1)

    @property
    def batch_in_words(self) -> str:
        """The value of `--batch`."""
        return self.batch if isinstance(self.batch, str) else ",".join(map(str, self.batch or ()))

    def check(self) -> None:
        """Refuse both or neither of training and model, options that a model ignores, and numbers
        that are none or too large to compute with."""
        if (self.train is None) == (self.model is None):
            given = "neither was" if self.train is None else "both were"
            raise PacelineError(
                f"a plan is for TRAIN or for --model; {given} given",
                fix='write `paceline plan train.py`, or `paceline plan --model "gpt: layers=12'
                ' width=768 heads=12 seq=1k vocab=50k"`',
            )
        critical = self.critical_batch.value if self.critical_batch else None
        ignored = {
            "--profile": self.profile,
            "--critical-batch": critical,
        }
        for name, value in ignored.items():
            if self.model is not None and value is not None:
                raise PacelineError(
                    f"{name} {value} applies to a training of your own, not to --model",
                    fix=f"leave {name} out, or plan your training: paceline plan train.py",
                )
        if self.model is not None and self.compares_batches:
            raise PacelineError(
                f"--batch {self.batch_in_words} compares batches by what a training of your own"
                " learns, which is not known of --model",
                fix="give one batch, or plan your training: paceline plan train.py",
            )
        if self.engine != PACELINE and self.sync is not None:
            raise PacelineError(
                f"--sync {self.sync} is a mode of Paceline's engine, and --engine {self.engine} was"
                " given",
                fix="leave one of them out",
            )
        given_numbers = {
            "--nodes": max(self.nodes) if self.nodes else None,
            "--batch": max(self.batch) if isinstance(self.batch, tuple) else None,
            "--critical-batch": critical,
            "--steps": self.steps,
            "--budget": self.budget,
            "--deadline": self.deadline_seconds,
            "--time": self.slot_seconds,
        }
        for name, number in given_numbers.items():
            if number is not None and not 0 <= number <= _MOST[name]:  # also true for NaN
                raise PacelineError(
                    f"{name} {number} is not from 0 to {_MOST[name]:,}",
                    fix="give a number that a training can have",
                )


@dataclass(frozen=True)
class ModelInput:
    """A model's profile in each precision that may be chosen, its batch and length."""

    profiles: Mapping[Precision, Profile]
    batches: tuple[int, ...]
    length: TrainingLength | None
    source: Path | None = None
    """The file with measured times, if any."""
    note: str | None = None
    """What a reader must know of the batch."""
    stages: tuple[int, ...] = ()
    """The batches of a training whose batch grows."""


def cluster_file(request: PlanRequest) -> Path | None:
    """Return the file that describes the cluster; None for a device of the catalog."""
    return None if request.device else request.cluster or DEFAULT_CLUSTER


def requested_cluster(request: PlanRequest) -> Cluster:
    """Return the cluster of a file, or of a catalog device with its usual links."""
    found = _requested_cluster(request)
    return found.model_copy(update={"prices": request.prices}) if request.prices else found


def _requested_cluster(request: PlanRequest) -> Cluster:
    file, device = request.cluster, request.device
    if file is not None and device is not None:
        raise PacelineError(
            f"--cluster {file} and --device {device} both describe the cluster",
            fix="give one of them",
        )
    if device is not None:
        if request.nodes is None:
            raise PacelineError(
                f"--device {device} does not say how many nodes there are",
                fix="add --nodes, such as --nodes 16, or a list: --nodes 1,4,16",
            )
        return usual_cluster(device, max(request.nodes))
    if file is None and not DEFAULT_CLUSTER.exists():
        raise PacelineError(
            "no cluster is given",
            fix="measure it with `paceline probe`, which writes cluster.toml; or give --cluster"
            " FILE, or --device NAME --nodes N",
        )
    return read_cluster(file or DEFAULT_CLUSTER)


def requested_node_counts(request: PlanRequest, cluster: Cluster) -> Sequence[int]:
    """Return the numbers of nodes to consider: those given, else powers of two and all nodes."""
    counts = request.nodes
    if counts is None:
        return node_counts(cluster.nodes)
    if max(counts) > cluster.nodes:
        raise PacelineError(
            f"--nodes {max(counts)} was given, but the cluster has {cluster.nodes}",
            fix="give fewer, or write the nodes that it will have into the cluster's file",
        )
    return counts


def requested_model(
    request: PlanRequest, cluster: Cluster, advance: Callable[[float], None]
) -> ModelInput:
    """Profile the user's training, or return the profile of a model given by its dimensions."""
    ENGINES.get(request.engine)  # refuses one that does not exist before a model is profiled
    both = request.model is None and request.engine == PACELINE
    precisions = _precisions(cluster, request.precision, both=both)
    if request.model is None:
        return _training_input(request, cluster, precisions, advance)
    if request.batch is None or request.batch == "best":
        raise PacelineError(
            "--model does not give the batch size",
            fix="add --batch N: the global batch, in samples per step over all workers",
        )
    length = None if request.steps is None else TrainingLength(request.batch[0], request.steps)
    return ModelInput({precisions[0]: profile_of(request.model)}, request.batch, length)


def _precisions(cluster: Cluster, asked: Precision | None, *, both: bool) -> Sequence[Precision]:
    """Return one 16-bit precision of the device, and fp32 unless the model has dimensions only."""
    has = cluster.device.peak_flops
    if asked is not None:
        cluster.device.peak(asked)  # refuses a precision that the device does not have
        if asked == "fp32" and not both:
            raise PacelineError(
                "--precision fp32 was given, but a --model and engines other than Paceline's are"
                " planned in 16 bits only",
                fix="leave --precision out, or plan your own training: paceline plan train.py",
            )
        return [asked]
    sixteen: tuple[Precision, ...] = ("bf16", "fp16")
    half = [each for each in sixteen if each in has][:1]
    return [*half, "fp32"] if both or not half else half


def _training_input(
    request: PlanRequest,
    cluster: Cluster,
    precisions: Sequence[Precision],
    advance: Callable[[float], None],
) -> ModelInput:
    target = request.train
    assert target is not None
    timed = _timed_profile(request.profile, target, cluster)
    profiles: Mapping[Precision, Profile]
    note = None
    stages: tuple[int, ...] = ()
    if timed is not None:
        has = {each: timed.precisions[each] for each in precisions if each in timed.precisions}
        profiles, batch, steps = has or timed.precisions, timed.batch, timed.steps
    else:
        training = load_training(target)
        batch, steps = training.largest_batch, training.steps_in_plans
        if training.grows:
            first = training.first_batch
            note = f"the batch grows from {first:,} to {batch:,}: planned for the largest one"
            stages = training.known_batches if request.batch is None else ()
        made = TrainingProfiles(cluster, measure=request.measure)
        profiles = found = {}
        for number, each in enumerate(precisions):
            found[each] = made.of(target, each)
            advance((number + 1) / len(precisions))
    length = TrainingLength(batch, steps, request.critical_batch)
    batches = _batches(request, target, length)
    if request.steps is not None:
        length = TrainingLength(batches[0], request.steps)
    return ModelInput(
        profiles,
        batches,
        length,
        source=(request.profile or DEFAULT_PROFILE) if timed is not None else None,
        note=note if request.batch is None else None,
        stages=stages,
    )


def _batches(request: PlanRequest, target: Target, length: TrainingLength) -> tuple[int, ...]:
    """Return the batches to consider: with "best", the training's own times powers of two."""
    asked = request.batch or (length.batch,)
    if asked != "best" and not request.compares_batches:
        return asked
    said = f"--batch {request.batch_in_words}"
    if length.critical is None:
        raise PacelineError(
            f"{said} was given, but the critical batch of the training is not known",
            fix=f"measure it with `paceline probe {target.file.name} --learning`, or take it from a"
            " run with --calibrate RUN; or give --critical-batch N",
        )
    if request.steps is not None:
        raise PacelineError(
            f"{said} and --steps {request.steps} were given, but batches differ in the steps that"
            " they need",
            fix="leave --steps out: each batch trains to the loss of the training's own length; or"
            " give one batch",
        )
    if asked != "best":
        return asked
    training = load_training(target)
    samples = training.sample_order().samples if training.has_index else _MOST["--batch"]
    most = min(max(length.batch, MOST_TIMES_CRITICAL * length.critical.at_hand), samples)
    times = [2**power for power in range(_MOST["--batch"].bit_length())]
    larger = [each * length.batch for each in times if each * length.batch <= most]
    smaller = [length.batch // each for each in (4, 2) if length.batch % each == 0]
    return (*smaller, *(larger or [length.batch]))


def _timed_profile(file: Path | None, target: Target, cluster: Cluster) -> TrainingProfile | None:
    """Return the times that `paceline probe TRAIN` measured on such devices, if any."""
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
