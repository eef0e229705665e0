"""The training engines that can be planned for: what each can run, how it holds and moves a
model, and its own settings for a layout."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import RECOMPUTE, Layouts
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.sync import SyncSettings
from paceline.specs.registry import Registry


@dataclass(frozen=True)
class LayoutChoices:
    """The layouts that an engine can run."""

    recompute: tuple[str, ...]
    """Names of `RECOMPUTE`."""
    chunks: tuple[int, ...] = (1,)
    """Stages per worker of a pipeline."""
    equal_stages: bool = False
    """Whether stages must divide the blocks."""
    tensor: bool = True
    pipeline: bool = True
    shards: Literal["any", "none"] = "any"
    """How data-parallel workers may divide weights."""
    optimizer_shards: bool = False
    """Whether replicas divide the optimizer state instead (ZeRO-1)."""
    sequence: Literal["never", "choice", "always"] = "never"
    """Whether sequence parallelism is a choice, without a pipeline, or comes with tensor
    parallelism."""


@dataclass(frozen=True)
class Chosen:
    """One layout of an engine, with what its settings need."""

    layouts: Layouts
    """A single one."""
    batch: int
    precision: str
    profile: Profile

    def number(self, name: str) -> int:
        """Return a field of the layout."""
        return int(getattr(self.layouts, name)[0])

    @property
    def recompute(self) -> str:
        """The name of its recomputation."""
        return RECOMPUTE[self.number("recompute")]


class EngineKind(ABC):
    """A training engine; each has a file of its own."""

    title: ClassVar[str]
    """Its name in words."""
    choices: ClassVar[LayoutChoices]
    score: ClassVar[str]
    """How good predictions for it are, and on which measurements."""

    @abstractmethod
    def engine(
        self,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        sync: SyncSettings | None = None,
    ) -> Engine:
        """Return the properties that the cost model depends on: memory law and overlap."""

    @abstractmethod
    def settings(self, chosen: Chosen) -> str:
        """Return the engine's own settings for a layout, as its users write them."""


ENGINES: Registry[EngineKind] = Registry(
    "engine",
    group="paceline.engines",
    package="paceline.plan.engines",
    attribute="ENGINE",
    kind=EngineKind,  # type: ignore[type-abstract]
)
"""All engines by name, built in or from other packages."""
