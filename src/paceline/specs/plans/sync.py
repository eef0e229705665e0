"""Synchronization modes: their interface to the rest of Paceline, and their names in plans.

This room cannot import the modes, which are in a higher layer. Reading `[sync]` of a plan or
`--sync` looks a mode's class up by name, in the registry of built-in and third-party modes.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, SerializeAsAny, ValidationError

from paceline.specs.base import Spec, WrongValue
from paceline.specs.errors import PacelineError
from paceline.specs.key_value_settings import check_keys, first_error, with_settings
from paceline.specs.plans.layout import Layout
from paceline.specs.plans.traffic import ReplicatedPart, Traffic
from paceline.specs.registry import Registry

DEFAULT_MODE = "allreduce"


class SyncSettings(Spec):
    """A synchronization mode with its settings: how the replicas of a model agree.

    A subclass has the settings of one mode, each with a default. `paceline.sync.mode.SyncMode`
    defines the rest of a mode's interface.
    """

    mode: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `MODE[:key=value,…]`, the value of `--sync`; a subclass reads its own mode only."""
        mode, _, rest = text.partition(":")
        found = with_settings(
            SYNC_MODES.get(mode),
            rest,
            option=f"--sync {text!r}",
            what=f"the synchronization mode {mode}",
            fixed=("mode",),
        )
        if not isinstance(found, cls):
            raise TypeError(f"{text!r} is not of {cls.__name__}")
        return found

    def short(self) -> str:
        """Return the text that `parse` reads: the mode and the settings that differ from its
        defaults."""
        usual = SYNC_MODES.get(self.mode)
        changed = [
            f"{name}={getattr(self, name)}"
            for name in type(self).model_fields
            if getattr(self, name) != getattr(usual, name)
        ]
        return self.mode + (":" + ",".join(changed) if changed else "")

    @property
    def title(self) -> str:
        """Name of this mode in tables, with its compression."""
        return self.mode

    @property
    @abstractmethod
    def words(self) -> str:
        """The replicas' action, after "Replicas synchronize by": `averaging their weights …`."""

    @property
    def by_engine(self) -> bool:
        """Whether PyTorch itself averages the gradients of replicas, in backward."""
        return False

    @property
    def replicas_differ(self) -> bool:
        """Whether replicas have different weights between two rounds of communication."""
        return True

    @property
    def replicas_suffice(self) -> bool:
        """Whether each replica holds all training state, so that any one can continue."""
        return self.by_engine

    @property
    def undecided(self) -> bool:
        """Whether this leaves the choice of a mode to the planner or to measurements."""
        return False

    @property
    def has_servers(self) -> bool:
        """Whether parameter servers update the weights in host memory."""
        return False

    @property
    def batch_parts(self) -> int | None:
        """Number of parts of every batch, each with its own forward; None without parts."""
        return None

    def computes_apart(self, layout: Layout) -> bool:
        """Whether workers compute a step separately: other weights, or parts of the batch."""
        return self.batch_parts is not None or (self.replicas_differ and layout.replicas > 1)

    def for_replicas(self, replicas: int) -> Self:
        """Return the settings of a run that starts on `replicas`; restarts keep them."""
        del replicas
        return self

    def for_optimizer(self, *, adaptive: bool) -> Self:
        """Return the settings with those that depend on the replicas' own optimizer; `adaptive`:
        whether it divides by the size of past gradients, as Adam does."""
        del adaptive
        return self

    def forward_samples(self, batch: int, replicas: int) -> int | None:
        """Return the samples of one forward if the mode prescribes them."""
        del batch, replicas
        return None

    def check(self, layout: Layout) -> None:
        """Refuse settings that conflict with each other or with a layout."""
        if self.replicas_differ and layout.batch_norm == "synchronized" and layout.replicas > 1:
            raise PacelineError(
                f"batch_norm=synchronized was given together with --sync {self.mode}, in which"
                " replicas do not wait for each other in every step",
                fix="use --batch-norm local",
            )
        if not self.by_engine and layout.replicas == 1 and layout.workers > 1:
            raise PacelineError(
                f"--sync {self.short()} was given, but the layout has no replicas; shards,"
                " tensor-parallel slices and pipeline stages synchronize in every step",
                fix="use --replicas 2 or more, or leave --sync out",
            )

    def check_shared_weights(self, model: str) -> None:
        """Refuse settings under which pipeline stages that share a weight would update it
        differently."""

    @abstractmethod
    def traffic(self, part: ReplicatedPart) -> Traffic:
        """Return the communication of the replicas that hold a part of the model."""

    def state_bytes(self, workers: int) -> float:
        """Return the memory that the mode needs per parameter that a worker holds."""
        del workers
        return 0.0

    def extra_samples(self, workers: int) -> float:
        """Return the samples needed to reach the same loss, relative to plain all-reduce:
        assumed."""
        del workers
        return 1.0

    def candidates(self) -> Iterator[Self]:
        """Yield settings for the planner and `auto` to try on slow links."""
        return iter(())

    def overlapping(self, steps: int) -> Self:
        """Return these settings with communication that overlaps up to `steps` steps."""
        del steps
        return self


SYNC_MODES: Registry[SyncSettings] = Registry(
    "synchronization mode",
    group="paceline.sync",
    package="paceline.sync.modes",
    attribute="MODE",
    kind=SyncSettings,  # type: ignore[type-abstract]
)
"""Every mode with its default settings."""


def default_sync() -> SyncSettings:
    """Return the default mode: PyTorch's all-reduce of gradients."""
    return SYNC_MODES.get(DEFAULT_MODE)


def sync_candidates() -> list[SyncSettings]:
    """Return the candidates of all modes, the least assumed harm to learning first."""
    offered = (each for mode in SYNC_MODES for each in mode.candidates())
    return sorted(
        offered,
        key=lambda each: (
            each.extra_samples(2),
            each.traffic(ReplicatedPart(2, 1 << 20)).device_bytes,
        ),
    )


def read_sync(given: dict[str, Any]) -> SyncSettings:
    """Return the settings that a mapping describes, in the class of its mode."""
    mode = given.get("mode", DEFAULT_MODE)
    if not isinstance(mode, str):
        raise PacelineError(
            f"[sync] has mode={mode!r}, which is not a name",
            fix=f"use one of {', '.join(SYNC_MODES.names)}",
        )
    kind = type(SYNC_MODES.get(mode))
    check_keys(given, kind.model_fields, option="[sync]", what=f"the synchronization mode {mode}")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise first_error(error, option="[sync]") from None


def _read(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    try:
        return read_sync(given)
    except PacelineError as error:
        raise WrongValue(error) from None


AnySync = Annotated[SerializeAsAny[SyncSettings], BeforeValidator(_read)]
"""A field with the settings of any mode; `mode` selects the class."""
