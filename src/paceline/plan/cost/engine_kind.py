"""The training engines that can be planned for: what each can run, how it holds and moves a
model, and its own settings for a layout."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import RECOMPUTE, Layouts
from paceline.specs.errors import PacelineError
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
    shards: Literal["any", "none", "all"] = "any"
    """How data-parallel workers may divide weights; `all`: over all of them only (ZeRO-3)."""
    optimizer_shards: bool = False
    """Whether replicas divide the optimizer state instead (ZeRO-1)."""
    sequence: Literal["never", "choice", "always"] = "never"
    """Whether sequence parallelism is a choice, without a pipeline, or comes with tensor
    parallelism."""
    context: bool = False
    """Whether workers may divide the tokens of a sample."""
    experts: bool = False
    """Whether workers may divide the experts of a mixture."""
    fp8: bool = False
    """Whether matrix products may be in 8 bits."""


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
        return int(np.ravel(getattr(self.layouts, name))[0])

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
    remark: ClassVar[str | None] = None
    """What a variant that saves memory does, for the plan."""

    @property
    def savings(self) -> tuple["EngineKind", ...]:
        """Variants that need less memory and more time, in the order in which they are tried where
        nothing else fits."""
        return ()

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


def check_fp8(name: str, *, described: bool) -> None:
    """Refuse 8 bits for an engine without them, and for a training that is not `described` by its
    dimensions: its costs are counted in 16 bits or fp32."""
    kind = ENGINES.get(name)
    if not kind.choices.fp8:
        have = [each for each in ENGINES.names if ENGINES.get(each).choices.fp8]
        raise PacelineError(
            f"--precision fp8 was given, but {kind.title} is planned in 16 bits or fp32",
            fix=f"plan for an engine that has it (--engine {' or '.join(have)}), or use bf16",
        )
    if not described:
        raise PacelineError(
            "--precision fp8 is planned for --model, not for a training of your own",
            fix="leave --precision out, or describe the model, as in --model llama3-8b",
        )
