"""Export of the trained weights in one of several formats, by one worker."""

import json
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from paceline.specs import PacelineError
from paceline.train.export import dcp, huggingface, safetensors_files

Format = Literal["safetensors", "huggingface", "dcp"]
Weights = Iterator[tuple[str, torch.Tensor]]
Write = Callable[[Weights, Path, nn.Module, int], Path]
"""`write(weights, path, model, file_bytes)`: write files of at most `file_bytes` bytes each, and
return the path of the settings."""

LARGEST_FILE_BYTES = 5 * 10**9
"""Default size of a file, as of Hugging Face's own."""

_WRITERS: dict[Format, Write] = {
    "safetensors": safetensors_files.write,
    "huggingface": huggingface.write,
    "dcp": dcp.write,
}


@dataclass(frozen=True)
class Export:
    """Where and how to write the weights of a model."""

    path: Path
    format: Format
    file_bytes: int
    """Largest size of a file, but for a single tensor that is larger."""

    def __post_init__(self) -> None:
        if self.format not in get_args(Format):
            raise PacelineError(
                f"export(format={self.format!r}) is unknown",
                fix=f"give one of {', '.join(get_args(Format))}",
            )
        if self.format == "safetensors" and self.path.suffix != ".safetensors":
            raise PacelineError(
                f"the weights are exported as safetensors, but the path is {self.path}",
                fix=f"give {self.path.with_suffix('.safetensors')}",
            )

    def write(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        model: nn.Module,
        settings: dict[str, Any],
    ) -> None:
        """Write the weights, and the settings as JSON beside them or in their folder.

        The files are the user's product: the umask decides who can read them.
        """
        described: dict[str, Any] = {}

        def on_cpu() -> Weights:
            for name, tensor in weights:
                described[name] = {
                    "shape": list(tensor.shape),
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                }
                # A copy: a tensor on the CPU may be part of a larger one, or be used again.
                yield name, tensor.detach().cpu().clone().contiguous()

        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = _WRITERS[self.format](on_cpu(), self.path, model, self.file_bytes)
        contents = settings | {"torch": torch.__version__, "parameters": described}
        beside.unlink(missing_ok=True)  # it may have another mode
        beside.write_text(json.dumps(contents, indent=2))
        # safetensors creates files with mode 0600, whatever the umask.
        folder, stem = (self.path, "*") if self.path.is_dir() else (beside.parent, self.path.stem)
        for pattern in (f"{stem}.safetensors", f"{stem}-?????-of-?????.safetensors"):
            for file in folder.glob(pattern):
                file.chmod(stat.S_IMODE(beside.stat().st_mode))


def export(
    weights: Iterable[tuple[str, torch.Tensor]],
    to: Export,
    model: nn.Module,
    settings: dict[str, Any],
    *,
    writes: bool,
) -> None:
    """Gather the weights and write them, on the worker with `writes`. All workers call this."""
    if to.format == "huggingface":
        huggingface.check(model)
    if writes:
        to.write(weights, model, settings)
        return
    for _ in weights:  # gathering is collective
        pass
