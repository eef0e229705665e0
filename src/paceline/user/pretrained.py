"""Weights that a training starts from instead of random ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paceline.specs import PacelineError


@dataclass(frozen=True)
class Pretrained:
    """Pretrained weights: a safetensors file, or a folder as Hugging Face's `save_pretrained`."""

    path: str | Path
    partial: bool = False
    """Whether the file may lack weights of the model, and the model weights of the file."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """Prefixes of names in the file, with the prefixes of the same weights in the model."""

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | Path):
            raise PacelineError(
                f"Training(pretrained=…) is of type {type(self.path).__name__}",
                fix="give a path, or paceline.Pretrained(path, partial=…, rename=…)",
            )

    @classmethod
    def of(cls, given: "Pretrained | str | Path") -> "Pretrained":
        """Return what was given; a path alone is a file of all weights by their own names."""
        return given if isinstance(given, Pretrained) else cls(given)

    @property
    def exists(self) -> bool:
        """Whether the weights are still where they were."""
        return Path(self.path).exists()

    def renamed(self, name: str) -> str:
        """Return the model's name of a weight in the file: its longest known prefix replaced."""
        known = [prefix for prefix in self.rename if name.startswith(prefix)]
        if not known:
            return name
        prefix = max(known, key=len)
        return self.rename[prefix] + name.removeprefix(prefix)
