"""The output of a layer that fuses several is taken apart, or gathered."""

from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor.experimental import implicit_replication
from torch.nn import functional as F

from paceline.parallel.slices.sliced_tensors import Fused
from paceline.parallel.slices.sliced_values import SlicedValues
from parallel.sliced_ranks import difference, workers
from parallel.test_sliced_functions import BATCH, LENGTH, Call, gradient_of, results_of
from ranks import run_ranks

FUSED: dict[str, Call] = {
    "chunk": lambda x: x.chunk(3, dim=-1),
    "split": lambda x: torch.split(x, [8, 8, 8], dim=2),
    "split otherwise": lambda x: torch.split(x, [4, 20], dim=-1),
    "tensor_split": lambda x: x.tensor_split(3, dim=-1),
    "by samples": lambda x: x.chunk(2, dim=0),
    "view": lambda x: x.view(BATCH, LENGTH, 3, 4, 2).permute(2, 0, 3, 1, 4).unbind(0),
    "view of parts": lambda x: torch.unflatten(x, -1, (3, 8))[:, :, 1],
    "view otherwise": lambda x: [x.reshape(BATCH, LENGTH, 4, 6), x.view(-1, 24)],
    "converted": lambda x: x.double().contiguous().chunk(3, dim=-1)[2],
    "anything else": lambda x: [x * 2, x.sum(), x[..., :8], F.dropout(x, 0.0), x.mT @ x],
    "its form": lambda x: torch.tensor([*x.shape, x.ndim, x.numel(), x.size(-1), x.dim()]),
}


def compare_fused() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with workers() as mesh:
        number, ways = mesh.get_local_rank(), mesh.size()
        for name, call in FUSED.items():
            torch.manual_seed(0)
            value = torch.randn(BATCH, LENGTH, 24, requires_grad=True)
            expected = results_of(call, value)
            gradient = gradient_of(expected, value)
            chunks = [part.chunk(ways, dim=-1)[number] for part in value.detach().chunk(3, dim=-1)]
            local = torch.cat(chunks, dim=-1).requires_grad_()
            with implicit_replication(), SlicedValues(mesh):
                results = results_of(call, Fused(local, (8, 8, 8), mesh))
                far = [difference(*each) for each in zip(results, expected, strict=True)]
                found_gradient = gradient_of(results, local)
            if gradient is not None and found_gradient is not None:
                cut = [part.chunk(ways, dim=-1)[number] for part in gradient.chunk(3, dim=-1)]
                far.append(difference(found_gradient, torch.cat(cut, dim=-1)))
            found[name] = max(far)
    return found


def test_fused_outputs_are_taken_apart_or_gathered(tmp_path: Path) -> None:
    for found in run_ranks(compare_fused, 2, tmp_path):
        assert {name: far for name, far in found.items() if far > 1e-5} == {}
