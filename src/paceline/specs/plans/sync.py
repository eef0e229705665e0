"""How workers agree: how often, with whom, how stale, in how many bits."""

import math
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError
from paceline.specs.plans.canonical import check_canonical
from paceline.specs.plans.layout import Layout
from paceline.specs.settings import with_settings

Mode = Literal[
    "allreduce", "canonical", "local", "diloco", "sparseloco", "gossip", "stale", "easgd", "auto"
]
Compress = Literal["none", "bf16", "int8", "int4", "int2", "topk", "topk2", "sign", "powersgd"]

LOCAL_STEPS = ("local", "diloco", "sparseloco")
"""Modes in which replicas take several steps of their own between two exchanges."""

_PRESETS: dict[str, dict[str, Any]] = {
    "local": {"outer_rate": 1.0, "outer_momentum": 0.0},
    "diloco": {"outer_rate": 0.7, "outer_momentum": 0.9},
    "sparseloco": {
        "compress": "topk2",
        "keep": 1 / 64,
        "feedback": 0.95,
        "outer_rate": 1.0,
        "outer_momentum": 0.0,
    },
    "gossip": {"every": 1},
    "easgd": {"every": 4},
}
"""What a mode's name stands for; what is given beside the name counts more."""


class Sync(Spec):
    """The way in which replicas of a model come to agree."""

    mode: Mode = "allreduce"
    """`allreduce`: the mean gradient, every step. `canonical`: the same, with the same bits on any
    number of replicas. `local`, `diloco`, `sparseloco`: steps of one's
    own, then the mean change. `gossip`: a mean with a few others. `stale`: a server whose weights
    may be some steps old. `easgd`: pulled towards a common centre. `auto`: measured, then chosen.
    """
    compress: Compress = "none"
    """What is sent: whole numbers of 32 bits, fewer bits (`bf16`, `int8`, `int4`, `int2`, `sign`),
    the largest only (`topk`, `topk2` with two bits each), or factors of low rank (`powersgd`)."""
    every: int = Field(default=20, ge=1)
    """Steps between two exchanges, where not every step has one."""
    fragments: int = Field(default=1, ge=1)
    """Parts of the model that local-step modes exchange in turn instead of all at once."""
    overlap: int = Field(default=0, ge=0)
    """Steps that an exchange may take while training goes on."""
    outer_rate: float = Field(default=1.0, gt=0)
    """How much of the mean change is taken."""
    outer_momentum: float = Field(default=0.0, ge=0, lt=1)
    """Of the mean changes (Nesterov)."""
    keep: float = Field(default=0.01, gt=0, le=0.5)
    """Of all numbers, those that `topk` sends."""
    rank: int = Field(default=4, ge=1)
    """Of the factors that `powersgd` sends."""
    feedback: float = Field(default=1.0, ge=0, le=1)
    """Of what compression lost, the part that is added to what is sent next."""
    warmup: int = Field(default=0, ge=0)
    """First steps, in which nothing is compressed."""
    graph: Literal["ring", "exponential", "random"] = "exponential"
    """With gossip: who exchanges with whom."""
    staleness: int | None = Field(default=None, ge=0)
    """With stale: steps that a worker may be ahead of the slowest; any number where unset."""
    servers: int = Field(default=1, ge=1)
    """With stale: workers that keep a part of the weights for all."""
    pull: float = Field(default=0.1, gt=0, le=1)
    """With easgd: how far a worker and the centre move towards each other."""
    parts: int | None = Field(default=None, ge=1)
    """With canonical: into how many parts every batch is divided, on any number of replicas; as
    many as there are replicas to begin with where unset."""

    @field_validator("staleness", mode="before")
    @classmethod
    def _unbounded(cls, value: object) -> object:
        return None if value in ("any", math.inf) else value

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, given: Any) -> Any:
        return (
            {**_PRESETS.get(given.get("mode", ""), {}), **given} if type(given) is dict else given
        )

    @classmethod
    def parse(cls, text: str) -> "Sync":
        """Read `MODE[:key=value,…]`, as the command line has it."""
        mode, _, rest = text.partition(":")
        if mode not in get_args(Mode):
            raise PacelineError(
                f"--sync {text!r} names no way to synchronise",
                fix=f"use one of {', '.join(get_args(Mode))}",
            )
        return with_settings(
            cls(mode=mode), rest, option=f"--sync {text!r}", what="a mode", fixed=("mode",)
        )

    @property
    def by_engine(self) -> bool:
        """Whether PyTorch itself averages the gradients of replicas, in backward."""
        return self.mode == "allreduce" and self.compress == "none"

    @property
    def replicas_differ(self) -> bool:
        """Whether replicas have weights of their own between two exchanges."""
        return self.mode not in ("allreduce", "canonical")

    def among(self, replicas: int) -> "Sync":
        """The same with the parts of a batch that hold from now on, where nobody gave them."""
        if self.mode != "canonical" or self.parts is not None:
            return self
        return self.model_copy(update={"parts": replicas})

    def short(self) -> str:
        """What a table has room for: the mode and what differs from what its name stands for."""
        usual = Sync(mode=self.mode)
        changed = [
            f"{name}={getattr(self, name)}"
            for name in type(self).model_fields
            if getattr(self, name) != getattr(usual, name)
        ]
        return self.mode + (":" + ",".join(changed) if changed else "")

    def check(self, layout: Layout) -> None:
        """Say which of these settings do not go together, or not with a layout."""
        self._check_rhythm()
        self._check_servers(layout)
        if self.mode == "canonical":
            check_canonical(self.parts, self.compress, layout)
        if self.compress != "none" and self.mode in ("gossip", "stale", "easgd"):
            raise PacelineError(
                f"compress={self.compress} was given together with mode={self.mode}, which sends"
                " weights, not changes of them",
                fix="leave compress out, or use allreduce, local, diloco or sparseloco",
            )
        if self.compress not in ("none", "bf16") and layout.precision == "fp16":
            raise PacelineError(
                f"compress={self.compress} was given together with precision=fp16: what compression"
                " leaves for the next step was scaled for this one's loss",
                fix="use --precision bf16, or leave compress out",
            )
        if self.replicas_differ and layout.batch_norm == "synchronised" and layout.replicas > 1:
            raise PacelineError(
                f"batch_norm=synchronised was given together with mode={self.mode}, in which"
                " replicas do not wait for each other in every step",
                fix="use --batch-norm local",
            )
        if self != Sync() and layout.replicas == 1 and layout.workers > 1:
            raise PacelineError(
                f"--sync {self.short()} was given, but the layout has no replicas, and shards,"
                " slices and stages of one copy always work in step",
                fix="use --replicas 2 or more, or leave --sync out",
            )

        if self.mode == "easgd" and (layout.replicas + 1) * self.pull >= 2:
            # A pull leaves 1 − (replicas + 1) × pull of how far the centre is from their mean.
            raise PacelineError(
                f"pull={self.pull:g} was given for {layout.replicas} replicas: together they would"
                " throw the centre as far beyond them as it was away, or further",
                fix=f"use a pull below {2 / (layout.replicas + 1):.3g}; with"
                f" {1 / layout.replicas:.3g} the centre goes to their mean",
            )

    def _check_servers(self, layout: Layout) -> None:
        if self.mode != "stale":
            return
        if self.servers > layout.replicas:
            raise PacelineError(
                f"servers={self.servers} was given for {layout.replicas} replicas, some of which"
                " are the servers",
                fix=f"use at most servers={layout.replicas}",
            )
        if self.staleness != 0 and layout.tensor > 1:
            raise PacelineError(
                "mode=stale was given together with tensor: slices hold some weights alike, but"
                " gradients come to their servers in different orders",
                fix="use staleness=0, or shards in place of tensor",
            )
        if layout.precision == "fp16":
            raise PacelineError(
                "mode=stale was given together with precision=fp16: a server cannot tell by which"
                " loss scale a gradient overflowed",
                fix="use --precision bf16",
            )

    def _check_rhythm(self) -> None:
        if self.overlap >= self.every and self.mode in LOCAL_STEPS:
            raise PacelineError(
                f"overlap={self.overlap} steps were given for an exchange every {self.every}: it"
                " would end only after the next one has begun",
                fix=f"use an overlap below {self.every}, or a larger `every`",
            )
        if self.fragments > self.every and self.mode in LOCAL_STEPS:
            raise PacelineError(
                f"{self.fragments} fragments were given for {self.every} steps between exchanges:"
                " at most one is sent after each step",
                fix=f"use at most {self.every} fragments",
            )
        if self.overlap > 1 and self.mode == "gossip":
            raise PacelineError(
                f"overlap={self.overlap} was given together with mode=gossip, in which an exchange"
                " is done by the end of a step",
                fix="use overlap=1 to exchange while gradients are computed, or 0 to do so after",
            )
        if self.overlap and self.mode == "easgd":
            raise PacelineError(
                f"overlap={self.overlap} was given together with mode=easgd, in which an exchange"
                " is under way while gradients are computed, and no longer",
                fix="leave overlap out",
            )
