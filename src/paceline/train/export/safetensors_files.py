"""Weights as safetensors: one file, or several with an index as Hugging Face writes it."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn


def write(
    weights: Iterator[tuple[str, torch.Tensor]], path: Path, model: nn.Module, file_bytes: int
) -> Path:
    """Write `path`, or `NAME-00001-of-N.safetensors` and an index if one file is too small.

    Only the tensors of one file are in memory. Tied weights appear under each of their names, as
    `load_state_dict` expects.
    """
    del model
    drafts: list[tuple[Path, list[str]]] = []
    total_bytes = 0
    for tensors in _files(weights, file_bytes):
        draft = path.with_name(f".{path.name}-{len(drafts)}")
        save_file(tensors, draft, metadata={"format": "pt"})
        drafts.append((draft, list(tensors)))
        total_bytes += sum(tensor.nbytes for tensor in tensors.values())
    index = path.with_name(f"{path.name}.index.json")
    if len(drafts) == 1:
        drafts[0][0].rename(path)
        index.unlink(missing_ok=True)
    else:
        placed: dict[str, str] = {}
        for number, (draft, names) in enumerate(drafts, start=1):
            file = f"{path.stem}-{number:05d}-of-{len(drafts):05d}{path.suffix}"
            draft.rename(path.with_name(file))
            placed |= dict.fromkeys(names, file)
        contents = {"metadata": {"total_size": total_bytes}, "weight_map": placed}
        index.write_text(json.dumps(contents, indent=2))
        path.unlink(missing_ok=True)  # of an earlier export, which a reader would prefer
    return path.with_suffix(".json")


def _files(
    weights: Iterator[tuple[str, torch.Tensor]], file_bytes: int
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the tensors of each file."""
    tensors: dict[str, torch.Tensor] = {}
    size = 0
    for name, tensor in weights:
        if tensors and size + tensor.nbytes > file_bytes:
            yield tensors
            tensors, size = {}, 0
        tensors[name] = tensor
        size += tensor.nbytes
    yield tensors
