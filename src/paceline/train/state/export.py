"""Export of the trained weights to one file that plain PyTorch loads."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from paceline.specs import PacelineError
from paceline.specs.owned_files import write_owned


def export(
    weights: Iterable[tuple[str, torch.Tensor]],
    path: Path,
    settings: dict[str, Any],
    *,
    writes: bool,
    share: bool,
) -> None:
    """Write the weights to `path` (safetensors), and the settings to `path` with suffix .json.

    Only the user can write and read them; with `share`, the group can read the settings.

    All workers call this together, to gather their parts; only the worker with `writes` keeps the
    whole weights and writes the files.
    """
    if path.suffix != ".safetensors":
        raise PacelineError(
            f"the weights are exported as safetensors, but the path is {path}",
            fix=f"give {path.with_suffix('.safetensors')}",
        )
    # Tied weights appear under each of their names, as `load_state_dict` expects.
    tensors = {
        name: tensor.detach().cpu().clone().contiguous()
        for name, tensor in weights
        if writes  # all workers iterate, because gathering is collective
    }
    if not writes:
        return
    from safetensors.torch import save_file  # noqa: PLC0415 -- most runs start without it

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path)
    described = settings | {"torch": torch.__version__, "parameters": _described(tensors)}
    write_owned(path.with_suffix(".json"), json.dumps(described, indent=2), share=share)


def _described(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {
        name: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for name, tensor in tensors.items()
    }
