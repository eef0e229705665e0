"""The model of a request: its profile, the batches to consider, and the length of the training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.launch.target import Target
from paceline.plan.cost.engine_kind import ENGINES, check_fp8
from paceline.plan.cost.node_kinds import first_nodes
from paceline.plan.inputs import MOST_SAMPLES, PACELINE, PlanRequest
from paceline.plan.training_length import TrainingLength
from paceline.plan.training_profiles import TrainingProfiles, load_training
from paceline.profile.named_models import profile_of
from paceline.specs import Cluster, CriticalBatch, PacelineError, Profile, TrainingProfile
from paceline.specs.measurements.profile import TrainingPrecision as Precision
from paceline.specs.units import large

DEFAULT_PROFILE = Path("profile.toml")
MOST_TIMES_CRITICAL = 4
"""Largest batch of the search over the critical one: it needs five times the fewest samples."""
LEAST_OF_CRITICAL = 1 / 8
"""Smallest batch of the search for a model without one of its own, over the critical batch: it
needs 1.13 times the fewest samples."""


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

    @property
    def profile(self) -> Profile:
        """The profile in the first precision; what no precision changes is in each."""
        return next(iter(self.profiles.values()))


def requested_model(
    request: PlanRequest, cluster: Cluster, advance: Callable[[float], None]
) -> ModelInput:
    """Profile the user's training, or return the profile of a model given by its dimensions."""
    ENGINES.get(request.engine)  # refuses one that does not exist before a model is profiled
    if request.precision == "fp8":
        check_fp8(request.engine, described=request.model is not None)
    both = request.model is None and request.engine == PACELINE
    precisions = _precisions(cluster, request.precision, both=both)
    if request.model is None:
        return _training_input(request, cluster, precisions, advance)
    return _named_input(request, request.model, precisions[0])


def _named_input(request: PlanRequest, model: str, precision: Precision) -> ModelInput:
    """Return a model by its dimensions; its length is that with the first of its batches."""
    profile, critical = profile_of(model), request.critical_batch
    batches = request.batch
    if batches == "best" and critical is not None:
        batches = _around(critical)
    if batches is None or batches == "best":
        raise PacelineError(
            "--model does not give the batch size",
            fix="add --batch N: the global batch, in samples per step over all workers",
        )
    steps = _given_steps(request, batches[0], profile)
    length = None if steps is None else TrainingLength(batches[0], steps, critical)
    return ModelInput({precision: profile}, batches, length)


def _around(critical: CriticalBatch) -> tuple[int, ...]:
    """Return powers of two below and above a critical batch."""
    known = critical.at_hand
    powers = [2**power for power in range(MOST_SAMPLES.bit_length())]
    found = [each for each in powers if LEAST_OF_CRITICAL <= each / known <= MOST_TIMES_CRITICAL]
    return tuple(found) or (1,)


def _given_steps(request: PlanRequest, batch: int, profile: Profile) -> int | None:
    """Return the steps that were given, or that the given tokens take with a batch."""
    if request.tokens is None:
        return request.steps
    if profile.sequence is None:
        raise PacelineError(
            f"--tokens {large(request.tokens)} was given, but the tokens of a sample of"
            f" {profile.name} are not known",
            fix="give --steps N instead; they are known of a --model with seq, and of a training"
            " with two tensors of integers in a sample, such as tokens and targets, of one length"
            " (a profile.toml without them: measure it again)",
        )
    return -(-request.tokens // (batch * profile.sequence))


def _precisions(cluster: Cluster, asked: Precision | None, *, both: bool) -> Sequence[Precision]:
    """Return one 16-bit precision of the device, and fp32 unless the model has dimensions only."""
    device = first_nodes(cluster, cluster.nodes).device
    has = device.peak_flops
    if asked is not None:
        device.peak(asked)  # refuses a precision that the device does not have
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
    if cluster.mixed and request.profile is not None:
        raise PacelineError(
            f"--profile {request.profile} has the times of one device, but the cluster has several",
            fix="leave --profile out, or leave [[mixed]] out of the cluster's file",
        )
    timed = None if cluster.mixed else _timed_profile(request.profile, target, cluster)
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
        made = TrainingProfiles(cluster, measure=request.measure and not cluster.mixed)
        profiles = found = {}
        for number, each in enumerate(precisions):
            found[each] = made.of(target, each)
            advance((number + 1) / len(precisions))
    length = TrainingLength(batch, steps, request.critical_batch)
    batches = _batches(request, target, length)
    trained_at = batch if request.compares_batches else batches[0]
    given = _given_steps(request, trained_at, next(iter(profiles.values())))
    if given is not None:
        length = TrainingLength(trained_at, given, request.critical_batch)
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
            fix="leave --steps out: each batch trains to the loss of the training's own length;"
            " give that as --tokens N; or give one batch",
        )
    if asked != "best":
        return asked
    training = load_training(target)
    samples = training.sample_order().samples if training.has_index else MOST_SAMPLES
    most = min(max(length.batch, MOST_TIMES_CRITICAL * length.critical.at_hand), samples)
    times = [2**power for power in range(MOST_SAMPLES.bit_length())]
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
