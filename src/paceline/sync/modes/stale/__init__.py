"""`stale`: parameter servers whose weights may be some steps old."""

import math
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from paceline.specs import Layout, PacelineError
from paceline.specs.plans.traffic import NUMBER_BYTES, ReplicatedPart, Traffic, copied, transfer
from paceline.sync.mode import SyncMode

EXTRA_SAMPLES = 0.02
"""Additional samples per step of a gradient's age: assumed."""


class Stale(SyncMode):
    """Workers send gradients to parameter servers and continue with the servers' weights."""

    hook_path: ClassVar[str] = "paceline.sync.modes.stale.hook:StaleWeights"

    mode: Literal["stale"] = "stale"
    staleness: int | None = Field(default=None, ge=0)
    """Steps that a worker may be ahead of the slowest; unset or `any`: no context."""
    servers: int = Field(default=1, ge=1)
    """Number of workers that each serve a part of the weights."""

    @field_validator("staleness", mode="before")
    @classmethod
    def _unbounded(cls, value: object) -> object:
        return None if value in ("any", math.inf) else value

    @property
    def words(self) -> str:
        """A phrase that describes the mode."""
        return "sending gradients to parameter servers"

    @property
    def has_servers(self) -> bool:
        """Parameter servers update the weights."""
        return True

    def check(self, layout: Layout) -> None:
        """Reject settings that conflict with each other or with a layout."""
        if self.servers > layout.replicas:
            raise PacelineError(
                f"servers={self.servers} was given for {layout.replicas} replicas, some of which"
                " are the servers",
                fix=f"use at most servers={layout.replicas}",
            )
        if self.staleness != 0 and layout.tensor > 1:
            raise PacelineError(
                "--sync stale was given together with tensor: slices hold copies of some weights,"
                " but gradients arrive at their servers in different orders",
                fix="use staleness=0, or shards in place of tensor",
            )
        if layout.precision == "fp16":
            raise PacelineError(
                "--sync stale was given together with precision=fp16: a server cannot tell the loss"
                " scale under which a gradient overflowed",
                fix="use --precision bf16",
            )
        super().check(layout)

    def check_shared_weights(self, model: str) -> None:
        """Reject a staleness above 0 if stages share a weight."""
        if self.staleness != 0:
            raise PacelineError(
                f"--sync stale was given together with pipeline, but stages of {model} share a"
                " weight, and gradients arrive at their servers in different orders",
                fix="use staleness=0, or shards in place of pipeline",
            )

    def traffic(self, part: ReplicatedPart) -> Traffic:
        """Return the communication of a step over a server's link: gradients, then weights."""
        workers, parameters = part.workers, part.parameters
        servers = min(self.servers, workers)
        served = NUMBER_BYTES * -(-parameters // servers)
        crossing = 1.0
        if self.staleness != 0 and workers > 1:
            # Some workers are answered while others still send. A server is also a worker of the
            # other servers, and no worker is answered before it has sent everything.
            over_its_link, in_turn = workers + servers - 2, 2 * min(servers, workers - 1)
            crossing = max(over_its_link, in_turn) / (2 * (workers - 1))
        return Traffic(
            (
                transfer("receive", 2, served, workers - 1),
                transfer("send", 2, served, workers - 1),
            ),
            busiest=servers,
            per_step=1.0,
            overlapped_steps=0,
            device_bytes=copied(parameters, 6.0 + 2.0 * workers / servers),
            crossing=crossing,
        )

    def state_bytes(self, workers: int) -> float:
        """Return the bytes of a gradient, its message and the answer; on a server, also of the
        weights and a message from each other worker."""
        if workers == 1:
            return 0
        return NUMBER_BYTES * (3 + workers / min(self.servers, workers))

    def extra_samples(self, workers: int) -> float:
        """Return the samples to the same loss, relative to a plain all-reduce: assumed."""
        # Without a bound, a gradient's age is the number of gradients that arrive meanwhile.
        age = workers - 1 if self.staleness is None else min(self.staleness, workers - 1)
        return 1.0 + EXTRA_SAMPLES * age


MODE = Stale()
