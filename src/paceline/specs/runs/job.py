"""What is started: which training, or a probe, on how many machines, within which limits."""

from pathlib import Path

from pydantic import Field

from paceline.specs.base import Spec


class Limits(Spec):
    """What the scheduler may take the job's word for."""

    minutes: int | None = Field(default=None, ge=1)
    """Wall-clock limit; the partition's default where unset."""
    memory_megabytes: int | None = Field(default=None, ge=1)
    """Memory per node; the cluster's default where unset."""


class Job(Spec):
    """One training, or a probe, brought onto machines; the folder's `job.toml`."""

    name: str
    train: Path | None = None
    """The user's file, absolute; unset where the workers only probe the cluster."""
    probe: bool = False
    """Whether the workers probe the cluster and time the model, instead of training."""
    function: str = "training"
    """The function in it that returns a `paceline.Training`."""
    steps: int | None = Field(default=None, ge=1)
    """Steps to take, where a study and not the training says so."""
    batch_times: int = Field(default=1, ge=1)
    """The global batch, by the training's own: a study of weak scaling lets it grow."""
    trace_steps: int | None = Field(default=None, ge=1)
    """Steps of which workers record what they do; none where unset."""
    equal_samples: bool = False
    """Whether steps are counted in batches of the training's own: a larger batch takes fewer."""
    scale_rate: bool = False
    """Whether the learning rate grows with the batch, by the rule for the optimizer."""
    seed_plus: int = Field(default=0, ge=0)
    """Added to the training's seed: a study of how well it learns repeats it with several."""
    nodes: int = Field(default=1, ge=1)
    devices_per_node: int = Field(default=1, ge=1)
    """Workers on each node: one per device."""
    cpus_per_worker: int | None = Field(default=None, ge=1)
    gpus_per_node: int = Field(default=0, ge=0)
    power_limit_watts: float | None = Field(default=None, gt=0)
    """Of each GPU, while it trains; as the site has set it where unset."""
    scheduler: str | None = None
    """The scheduler that starts the workers; unset where this machine's launcher does."""
    partition: str | None = None
    limits: Limits = Limits()
    port: int | None = Field(default=None, ge=1, le=65535)
    """Where the workers meet; any free port where unset."""
    folder: Path
    """Where the workers' current directory is: the user's own, so relative paths keep working."""
    first_generation: int = Field(default=0, ge=0)
    """How often the run was started before this job."""
    python: Path
    """The interpreter the workers run on."""
    listeners: tuple[str, ...] = ()
    """Other tools that are told of the run while it runs, as `--to` takes them."""

    spares: int = Field(default=0, ge=0)
    """Nodes beyond these, or workers where all are on this machine, that stand by."""

    @property
    def workers(self) -> int:
        """All workers on all nodes."""
        return self.nodes * self.devices_per_node
