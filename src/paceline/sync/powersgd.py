"""Gradients as products of two narrow matrices (PowerSGD, arXiv 1905.13727).

One round of power iteration: the left factor is averaged over the workers and orthonormalized, then
the right one is averaged. The initial guess depends only on the step, so a checkpoint does not need
it. The result is as good as after a second round, because each worker takes one round on its own
matrix before it sends anything.
"""

import math
from collections.abc import Sequence

import torch

from paceline.sync.transport import Transport


class LowRank:
    """Averages matrices by low-rank factors; vectors and small matrices uncompressed."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def average(
        self,
        values: torch.Tensor,
        residual: torch.Tensor | None,
        shapes: Sequence[torch.Size],
        transport: Transport,
        step: int,
    ) -> None:
        """Average over the workers, in place; `residual`: exact values before, the error after."""
        parts = torch.split(values, [math.prod(shape) for shape in shapes])
        matrices = [
            part.view(shape[0], -1)
            for part, shape in zip(parts, shapes, strict=True)
            if self._pays(shape)
        ]
        others = [part for part, shape in zip(parts, shapes, strict=True) if not self._pays(shape)]
        generator = torch.Generator().manual_seed(step)
        left = []
        for matrix in matrices:
            guess = torch.randn(matrix.shape[1], self._rank, generator=generator).to(matrix.device)
            left.append(matrix @ _orthonormal(matrix.T @ (matrix @ guess)))
        _average_together([*left, *others], transport)
        left = [_orthonormal(each) for each in left]
        right = [matrix.T @ each for matrix, each in zip(matrices, left, strict=True)]
        _average_together(right, transport)
        for matrix, each, other in zip(matrices, left, right, strict=True):
            torch.mm(each, other.T, out=matrix)
        if residual is not None:
            residual.sub_(values)
            for part, shape in zip(
                torch.split(residual, [len(each) for each in parts]), shapes, strict=True
            ):
                if not self._pays(shape):  # sent uncompressed
                    part.zero_()

    def _pays(self, shape: torch.Size) -> bool:
        rows, columns = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, 1)
        return self._rank * (rows + columns) < rows * columns


def _average_together(tensors: Sequence[torch.Tensor], transport: Transport) -> None:
    if tensors:
        flat = transport.average(torch.cat([each.flatten() for each in tensors]))
        for each, part in zip(
            tensors, torch.split(flat, [each.numel() for each in tensors]), strict=True
        ):
            each.copy_(part.view_as(each))


def _orthonormal(matrix: torch.Tensor) -> torch.Tensor:
    basis: torch.Tensor = torch.linalg.qr(matrix)[0]
    return basis
