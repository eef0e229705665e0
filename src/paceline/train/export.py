"""The trained weights in one file that plain PyTorch loads."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from paceline.specs import PacelineError


def export(model: nn.Module, path: Path, settings: dict[str, Any], *, writes: bool) -> None:
    """Gather the weights and write `path` (safetensors) and `path` with .json, on one worker.

    Every worker calls this, since all hold a part; only the one that `writes` keeps the whole.
    """
    if path.suffix != ".safetensors":
        raise PacelineError(
            f"the weights are exported as safetensors, but the path is {path}",
            fix=f"give {path.with_suffix('.safetensors')}",
        )
    weights: dict[str, Any] = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if not writes:
        return
    # Tied weights stand under each of their names, so that `load_state_dict` is content.
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in weights.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path)
    described = settings | {"torch": torch.__version__, "parameters": _described(tensors)}
    path.with_suffix(".json").write_text(json.dumps(described, indent=2))


def _described(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {
        name: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for name, tensor in tensors.items()
    }
