"""The planner's inputs: a request, its cluster and its numbers of nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.cluster.catalog import read_cluster, usual_cluster
from paceline.cluster.kernels.kernel_files import with_kernels
from paceline.launch.target import Target
from paceline.plan.search.node_counts import Goal, node_counts
from paceline.schedulers.scheduler import PastWait
from paceline.specs import Cluster, CriticalBatch, PacelineError, Prices
from paceline.specs.measurements.profile import TrainingPrecision as Precision
from paceline.specs.units import large

DEFAULT_CLUSTER = Path("cluster.toml")
PACELINE = "paceline"
"""The engine that runs what is planned; plans for others have their settings."""

MOST_SAMPLES = 2**40
_MOST = {
    "--nodes": 10**6,
    "--batch": MOST_SAMPLES,
    "--critical-batch": MOST_SAMPLES,
    "--steps": 10**12,
    "--tokens": 10**18,
    "--budget": 10**15,
    "--deadline": 10**12,
    "--time": 10**12,
}
"""Largest values of options, in seconds for times: beyond any training, and exact as floats."""


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
    tokens: int | None = None
    """The length of the training instead of `steps`, for a model with a sequence."""
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
    queue: tuple[PastWait, ...] | None = None
    """How long past jobs waited; None: the time in the queue is left out."""
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
        if self.steps is not None and self.tokens is not None:
            raise PacelineError(
                f"--steps {self.steps} and --tokens {large(self.tokens)} both give the length of"
                " the training",
                fix="leave one of them out",
            )
        if self.model is not None:
            self._check_model()
        if self.engine != PACELINE and self.sync is not None:
            raise PacelineError(
                f"--sync {self.sync} is a mode of Paceline's engine, and --engine {self.engine} was"
                " given",
                fix="leave one of them out",
            )
        self._check_numbers()

    def _check_model(self) -> None:
        """Refuse what is not known of a model that is no training."""
        if self.profile is not None:
            raise PacelineError(
                f"--profile {self.profile} applies to a training of your own, not to --model",
                fix="leave --profile out, or plan your training: paceline plan train.py",
            )
        if self.compares_batches and self.critical_batch is None:
            raise PacelineError(
                f"--batch {self.batch_in_words} compares batches by what they learn, which is not"
                " known of --model",
                fix="add --critical-batch N, in samples, or give one batch; of a training of your"
                " own, `paceline probe train.py --learning` measures it",
            )
        if self.critical_batch is None:
            return
        if self.steps is None and self.tokens is None:
            raise PacelineError(
                "--critical-batch was given, but not the length of the training",
                fix="add --tokens N or --steps N: with the first of the batches",
            )
        if self.batch == "best" and self.steps is not None:
            raise PacelineError(
                f"--batch best and --steps {self.steps} were given, but batches differ in the steps"
                " that they need",
                fix="give --tokens N instead, or a list of batches: the steps are of the first",
            )

    def _check_numbers(self) -> None:
        """Refuse numbers that are none, or too large to compute with."""
        critical = self.critical_batch.value if self.critical_batch else None
        given_numbers = {
            "--nodes": max(self.nodes) if self.nodes else None,
            "--batch": max(self.batch) if isinstance(self.batch, tuple) else None,
            "--critical-batch": critical,
            "--steps": self.steps,
            "--tokens": self.tokens,
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
    file = file or DEFAULT_CLUSTER
    return with_kernels(read_cluster(file), file)


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
