"""Local steps, then the mean change: the settings and costs that several modes share."""

import math
from typing import ClassVar, Self

from pydantic import Field

from paceline.specs import Layout, PacelineError
from paceline.specs.plans.traffic import NUMBER_BYTES, ReplicatedPart, Traffic, copied
from paceline.sync.compression import PIECE, CompressedSync

CANDIDATE_STEPS = (4, 8, 16, 32, 64, 128)
"""Local steps between two rounds that the planner and `auto` try."""
EXTRA_SAMPLES = 0.03
"""Additional samples to the loss of a plain all-reduce, per doubling of the local steps: measured
on one model and ASSUMED for all others. There (two workers, a byte-level GPT of 0.14 M parameters,
AdamW, two seeds) local steps took 1.18 (8 at a time), 1.22 (16) and 1.25 (32) times the samples;
with an outer momentum of 0.5, 1.1 to 1.18. This gives 1.14, 1.18 and 1.23."""


class LocalSteps(CompressedSync):
    """Replicas take local steps and average their weight changes."""

    hook_path: ClassVar[str] = "paceline.sync.modes._local_steps_hook:LocalStepsHook"

    every: int = Field(default=20, ge=1)
    """Local steps between two rounds of communication."""
    fragments: int = Field(default=1, ge=1)
    """Number of fragments of the model that are communicated in turn instead of all at once."""
    overlap: int = Field(default=0, ge=0)
    """Steps that a round may overlap."""

    @property
    def outer(self) -> tuple[float, float]:
        """Learning rate and Nesterov momentum of the outer optimizer; here they give the mean."""
        return 1.0, 0.0

    @property
    def _rhythm(self) -> str:
        """A phrase for how often a round takes place."""
        words = f" after every {self.every} local steps{self._with_compression}"
        if self.overlap:
            words += f", overlapping {self.overlap} step{'s' if self.overlap > 1 else ''}"
        return words

    @property
    def _in_compression(self) -> str:
        return f" in {self.compress}" if self.compressed else ""

    def check(self, layout: Layout) -> None:
        """Reject settings that conflict with each other or with a layout."""
        if self.overlap >= self.every:
            raise PacelineError(
                f"overlap={self.overlap} was given together with every={self.every}: a round would"
                " end only after the next one has begun",
                fix=f"use an overlap below {self.every}, or a larger `every`",
            )
        if self.fragments > self.every:
            raise PacelineError(
                f"fragments={self.fragments} was given together with every={self.every}: at most"
                " one fragment is sent after each step",
                fix=f"use at most {self.every} fragments",
            )
        super().check(layout)

    def check_shared_weights(self, model: str) -> None:
        """Reject fragments and compression if stages share a weight."""
        super().check_shared_weights(model)
        if self.fragments > 1:
            raise PacelineError(
                f"fragments={self.fragments} was given together with pipeline, but stages of"
                f" {model} share a weight, and would communicate it at different steps",
                fix="leave it out, or use shards or tensor in place of pipeline",
            )

    def traffic(self, part: ReplicatedPart) -> Traffic:
        """Return the communication of a fragment: the mean of its changes."""
        workers, parameters = part.workers, part.parameters
        each, coding = -(-parameters // self.fragments), self.coding_copies(workers)
        return Traffic(
            self.mean_transfers(workers, each, 1, part.shapes),
            workers,
            self.fragments / self.every,
            self.overlap,
            copied(each, coding + (11.0 if self._has_momentum else 8.0)),
            launches=coding * -(-each // PIECE),
        )

    def state_bytes(self, workers: int) -> float:
        """Return the bytes of anchor, weights at launch, change, momentum and residual."""
        if workers == 1:
            return 0
        return self.residual_bytes + NUMBER_BYTES * (3 + self._has_momentum)

    def extra_samples(self, workers: int) -> float:
        """Return the samples to the same loss, relative to a plain all-reduce: assumed."""
        if workers == 1:
            return 1.0
        return (
            1.0
            + self.compression_samples
            + EXTRA_SAMPLES * math.log2(self.every + self.overlap) * drift(workers)
        )

    def overlapping(self, steps: int) -> Self:
        """Return these settings with rounds that overlap up to a quarter of the local steps."""
        return self.model_copy(update={"overlap": min(steps, self.every // 4)})

    @property
    def _has_momentum(self) -> bool:
        return self.outer[1] > 0


def drift(workers: int) -> float:
    """Return the factor on additional samples for this many drifting replicas: assumed."""
    return 1.0 + math.log2(workers) / 2
