"""A job: the training or probe to start, on how many machines, within which limits."""

from pathlib import Path

from pydantic import Field

from paceline.specs.base import Spec
from paceline.specs.runs.allocation import Allocation
from paceline.specs.runs.container import Container
from paceline.specs.runs.job_environment import JobEnvironment
from paceline.specs.runs.saved_step import SavedStep


class Limits(Spec):
    """Limits that the job requests from the scheduler."""

    minutes: int | None = Field(default=None, ge=1)
    """Wall-clock limit; None: the partition's default."""
    memory_megabytes: int | None = Field(default=None, ge=1)
    """Memory per node; None: the cluster's default."""


class Job(Spec):
    """A training, or a probe, to start on machines; `job.toml` in the run's folder."""

    name: str
    train: Path | None = None
    """The user's file, absolute; None if the workers only probe the cluster."""
    code: Path | None = None
    """The copy of `train` that the workers run, relative to the run folder; None: `train`."""
    probe: bool = False
    """Whether the workers probe the cluster and time the model instead of training."""
    kernel_seconds: float | None = Field(default=None, ge=0)
    """Time for a probe to measure kernels; None: the probe's default."""
    function: str = "training"
    """The function in that file that returns a `paceline.Training`."""
    arguments: tuple[str, ...] = ()
    """Arguments of the user's file: the rest of its `sys.argv`."""
    steps: int | None = Field(default=None, ge=1)
    """Number of steps, set by a study; None: the training's own."""
    batch_times: int = Field(default=1, ge=1)
    """Global batch as a multiple of the training's own, for weak scaling."""
    trace_steps: int | None = Field(default=None, ge=1)
    """Number of steps to profile; None: off."""
    check: bool = True
    """Whether worker 0 checks, before the first step, that the training can be divided."""
    equal_samples: bool = False
    """Whether to count steps in batches of the training's own size: a larger batch takes fewer."""
    scale_rate: bool = False
    """Whether the learning rate grows with the batch, by the optimizer's rule."""
    noise_every: int | None = Field(default=None, ge=1)
    """Steps between measurements of gradient noise, set by a probe; None: the training's own."""
    seed_plus: int = Field(default=0, ge=0)
    """Offset added to the training's seed, for a quality study with several seeds."""
    starts_from: SavedStep | None = None
    """The checkpoint of another run that this one continues, set by a study; None: the beginning.
    Batch and seed are then those after it."""
    nodes: int = Field(default=1, ge=1)
    devices_per_node: int = Field(default=1, ge=1)
    """Workers per node: one per device."""
    cpus_per_worker: int | None = Field(default=None, ge=1)
    gpus_per_node: int = Field(default=0, ge=0)
    power_limit_watts: float | None = Field(default=None, gt=0)
    """Power cap of each GPU for the duration of the run; None: the site's setting."""
    scheduler: str | None = None
    """The scheduler that starts the workers; None: the launcher on this machine."""
    partition: str | None = None
    limits: Limits = Limits()
    allocation: Allocation = Allocation()
    environment: JobEnvironment = JobEnvironment()
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port of the rendezvous; None: any free port."""
    folder: Path
    """Current directory of the workers: the user's own, so that relative paths keep working."""
    first_generation: int = Field(default=0, ge=0)
    """Number of times that the run was started before this job."""
    python: Path
    """Python interpreter of the workers."""
    container: Container | None = None
    """Image in which the workers of a cluster run, with its own Python; None: on the nodes."""
    listeners: tuple[str, ...] = ()
    """Listeners to which the run's events are forwarded, as in `--to`."""

    share: bool = False
    """Whether the group can read the run's folder; nobody else can write there in any case."""
    spares: int = Field(default=0, ge=0)
    """Additional spare nodes, or spare workers if all are on this machine."""

    @property
    def workers(self) -> int:
        """Workers on all nodes."""
        return self.nodes * self.devices_per_node
