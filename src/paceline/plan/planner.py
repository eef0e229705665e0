"""The planner: from a request to a plan, its cost and its reasons."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from paceline.launch.target import Target
from paceline.plan.answer import answer
from paceline.plan.batch_search import twice_the_batch
from paceline.plan.calibration.calibrate import Fit, fit
from paceline.plan.calibration.measured_runs import Ran, fitted_numbers, rows, write_numbers
from paceline.plan.calibration.priors import priors_for, unfitted
from paceline.plan.cost.engine_kind import ENGINES, EngineKind, LayoutChoices
from paceline.plan.cost.node_kinds import first_nodes
from paceline.plan.engines.paceline import Paceline
from paceline.plan.inputs import (
    PACELINE,
    PlanRequest,
    cluster_file,
    requested_cluster,
    requested_node_counts,
)
from paceline.plan.limits import Limits
from paceline.plan.model_input import requested_model
from paceline.plan.outlook.compute_origin import compute_origin
from paceline.plan.outlook.node_short import node_short
from paceline.plan.outlook.queue_wait import queue_wait, unknown_wait_remark
from paceline.plan.outlook.spot_nodes import offered_spot_cost
from paceline.plan.outlook.throughput import chinchilla_remark, throughput
from paceline.plan.search.best_layout import Best, best_on
from paceline.plan.search.layout_estimate import estimates
from paceline.plan.stage_nodes import stage_options
from paceline.plan.training_cost import training_cost
from paceline.plan.training_length import TrainingLength
from paceline.plan.training_profiles import TrainingProfiles, load_training
from paceline.specs import Answer, Cluster, Estimate, Layout, PacelineError, Plan, SyncSettings


@dataclass(frozen=True)
class FinishedRun:
    """The steps of a run, to calibrate with."""

    target: Target
    layout: Layout
    sync: SyncSettings
    nodes: int
    devices_per_node: int
    batch: int
    step_seconds: float
    """Typical step time; the mean, if not all steps communicate."""


@dataclass(frozen=True)
class Planned:
    """The planner's result."""

    answer: Answer
    best: Best
    cluster: Cluster
    """The nodes that were chosen."""
    fit: Fit
    """Coefficients of the prediction."""
    notes: tuple[str, ...]
    """Files that the planner read and wrote, in words."""


def make_plan(
    request: PlanRequest,
    runs: Sequence[FinishedRun] = (),
    advance: Callable[[float], None] = lambda done: None,
) -> Planned:
    """Choose a layout and a number of nodes, and predict the cost of the training.

    `runs` calibrate the prediction; the fitted coefficients are also written to the cluster's file.
    `advance` receives the completed fraction of the profiling.
    """
    request.check()
    cluster = requested_cluster(request)
    counts = requested_node_counts(request, cluster)
    model = requested_model(request, cluster, advance)
    notes = [f"times of the model: {model.source}"] if model.source else []
    notes += [model.note] if model.note else []
    found = _calibrated(runs, cluster)
    file = cluster_file(request)
    if runs and file is not None:
        notes.append(_remember(found, len(runs), file))
    limits = Limits(cluster, model.length, request.deadline_seconds, request.budget)
    sync, kind = _requested_sync(request.sync), _requested_engine(request.engine, cluster)
    searched = model.profiles, cluster, model.batches, counts, found, request.goal
    said, best = answer(*searched, limits, sync, kind)
    if model.stages:
        where = model.profiles, cluster, model.stages, counts, found, request.goal, sync, kind
        said = said.model_copy(update={"stages": stage_options(*where, planned=best.nodes)})
    there = first_nodes(cluster, best.nodes)
    said = said.model_copy(update=throughput(best, there, model.profile.sequence))
    said = said.model_copy(update={"compute_origin": compute_origin(best, found)})
    if request.engine == PACELINE and not cluster.mixed:  # survivors share the batch evenly
        short = node_short(best, model.profiles, there, found)
        said = said.model_copy(update={"node_short": short})
    if model.length is not None:
        said = _with_length(said, best, model.length, there, request)
        if model.length.critical is not None:
            search = partial(best_on, model.profiles, there, found=found, sync=sync, kind=kind)
            larger = twice_the_batch(best, model.length, there, search)
            said = said.model_copy(update={"larger_batch": larger})
    else:
        said = said.model_copy(update={"remarks": (*said.remarks, *_without_length(request))})
    return Planned(said, best, there, found, tuple(notes))


def _with_length(
    said: Answer, best: Best, length: TrainingLength, cluster: Cluster, request: PlanRequest
) -> Answer:
    """Return the answer with what the whole training takes on the chosen nodes."""
    steps, remarks = length.steps_with(said.batch), []
    cost = training_cost(best, cluster, steps, request.slot_seconds)
    queue = None
    if request.queue is not None:
        queue = queue_wait(request.queue, best.nodes, cost.slots or 1)
        remarks += [] if queue else [unknown_wait_remark(request.queue, best.nodes)]
    if request.tokens is not None:
        remarks.append(chinchilla_remark(request.tokens, said.parameters))
    tokens = said.sequence and said.sequence * said.batch * steps
    return said.model_copy(
        update={
            "training": cost.model_copy(update={"tokens": tokens, "queue": queue}),
            "spot": offered_spot_cost(best, cluster, steps),
            "remarks": (*said.remarks, *remarks),
        }
    )


def _without_length(request: PlanRequest) -> list[str]:
    """Return a sentence on what was asked about a whole training, if its length is not known."""
    asked = {"--queue": request.queue, "--time": request.slot_seconds}
    given = [name for name, value in asked.items() if value is not None]
    if not given:
        return []
    return [
        f"{' and '.join(given)} had no effect, because the length of the training is not known:"
        " add --steps N or --tokens N"
    ]


class Predictor:
    """Predicts the steps of given plans for one training on one cluster."""

    def __init__(self, target: Target, cluster: Cluster) -> None:
        self._target, self._cluster = target, cluster
        self._profiles = TrainingProfiles(cluster)
        self._fit = unfitted(cluster)

    def predict(self, plan: Plan, nodes: int, devices_per_node: int, batch_times: int) -> Estimate:
        """Return the estimate of a plan with a multiple of the training's own batch."""
        precision = plan.layout.precision
        ran = Ran(
            profile=self._profiles.of(self._target, precision),
            layout=plan.layout,
            nodes=nodes,
            devices_per_node=devices_per_node,
            batch=load_training(self._target).largest_batch * batch_times,
            step_seconds=1.0,  # unused: nothing is fitted
            sync=plan.sync,
        )
        (steps,) = rows([ran], self._cluster)
        (estimate,) = estimates(self._fit, steps, precision)
        return estimate.model_copy(update={"layout": plan.layout})


def _calibrated(runs: Sequence[FinishedRun], cluster: Cluster) -> Fit:
    if not runs:
        return unfitted(cluster)
    profiles = TrainingProfiles(cluster)
    measured = [
        Ran(
            profile=profiles.of(run.target, run.layout.precision),
            layout=run.layout,
            nodes=run.nodes,
            devices_per_node=run.devices_per_node,
            batch=run.batch,
            step_seconds=run.step_seconds,
            sync=run.sync,
        )
        for run in runs
    ]
    return fit(rows(measured, cluster), priors_for(cluster))


def _remember(found: Fit, runs: int, file: Path) -> str:
    """Write the fitted coefficients into the cluster's file; return a summary."""
    numbers = fitted_numbers(found)
    write_numbers(file, numbers)
    shown = [
        name for name, origin in zip(numbers, found.origins, strict=True) if origin == "measured"
    ]
    return f"{file}: calibrated with {runs} runs: {', '.join(shown) or 'no number measured'}"


class _WithoutPipeline(Paceline):
    """Paceline's engine on nodes of several kinds: stages cannot have work by speed."""

    choices: ClassVar[LayoutChoices] = replace(Paceline.choices, pipeline=False)


def _requested_engine(name: str, cluster: Cluster) -> EngineKind:
    """Return the engine; only Paceline's own divides a batch by speed."""
    if not cluster.mixed:
        return ENGINES.get(name)
    if name == PACELINE:
        return _WithoutPipeline()
    raise PacelineError(
        f"--engine {name} was given, but the cluster has nodes of several kinds, and only"
        " Paceline's engine gives them work by their speed",
        fix="leave --engine out, or leave [[mixed]] out of the cluster's file",
    )


def _requested_sync(text: str | None) -> SyncSettings | None:
    """Return the synchronization mode; None if the planner chooses."""
    sync = SyncSettings.parse(text) if text is not None else None
    return None if sync is None or sync.undecided else sync
