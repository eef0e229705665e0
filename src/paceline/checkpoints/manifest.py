"""The contents of a training state, and the files of a checkpoint. Nothing is unpickled.

An attacker with write access to the checkpoint storage can also write a manifest and its hash. So a
manifest can name only files inside its own checkpoint.
"""

import hashlib
from typing import Annotated, Any, Self

from pydantic import Field, NonNegativeInt

from paceline.specs.base import Spec

MANIFEST = "manifest.json"
SEAL = "manifest.json.sha256"
"""File with the manifest's hash, as `sha256sum` writes it. A checkpoint without it is ignored."""

MOST_MANIFEST_BYTES = 1 << 30
"""Maximum size of a manifest's root, which every worker holds in memory. Those of format 1 hold all
pieces of all tensors: 7 billion parameters and their optimizer state in 512 shards make 62 MB. A
parsed one takes ten times its size; one that an attacker wrote, up to 39 times."""

FileName = Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=200)]
"""Name of a file beside the manifest, never a path elsewhere."""
Shape = tuple[NonNegativeInt, ...]


class FileRecord(Spec):
    """A file of a checkpoint: its size and hash."""

    bytes: NonNegativeInt
    blake3: str


class TensorForm(Spec):
    """The form of a full tensor."""

    shape: Shape
    dtype: str


class Scalar(Spec):
    """A number in the optimizer state."""

    value: float | int
    dtype: str | None = None
    """The tensor's dtype, if the number was a tensor."""


class Contents(Spec):
    """The contents of a training state, except the values of its tensors."""

    step: int
    """Optimizer steps completed."""
    values: dict[str, Any]
    """Everything else that is not a tensor: optimizer options, schedule, loss scale."""
    tensors: dict[str, TensorForm] = Field(default_factory=dict)
    scalars: dict[str, Scalar]


class Manifest(Contents):
    """What a checkpoint holds, and its progress in the training."""

    samples: int
    """Samples used by these steps."""
    seconds: float
    """Duration of these steps."""
    data: dict[str, int]
    """The settings that determine the sample order."""
    metrics: dict[str, float]
    """Metrics of the last evaluation."""

    @classmethod
    def head(
        cls,
        step: int,
        *,
        samples: int = 0,
        seconds: float = 0.0,
        data: dict[str, int] | None = None,
        metrics: dict[str, float] | None = None,
        values: dict[str, Any] | None = None,
    ) -> Self:
        """Return a manifest with the training's progress only, before any data is stored."""
        return cls(
            step=step,
            samples=samples,
            seconds=seconds,
            data=data or {},
            metrics=metrics or {},
            values=values or {},
            scalars={},
        )


def digest_of(manifest: bytes) -> bytes:
    """Return the manifest's hash in the format of `sha256sum --check`."""
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n".encode()


SEAL_BYTES = len(digest_of(b""))
"""Size of the file with the manifest's hash."""
