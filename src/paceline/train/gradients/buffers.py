"""Copies of the buffers that a forward pass changes, for a step that is computed again."""

import torch
from torch import nn

from paceline.comm.torch_internals import NormLayer, foreach_copy_


class Buffers:
    """A model's buffers as they were when the step began.

    Only buffers that may have changed are copied: running statistics, which torch changes without a
    new version, and other buffers with a new version; not constant masks and tables, which may be
    large.
    """

    def __init__(self, model: nn.Module) -> None:
        statistics = {
            id(buffer)
            for module in model.modules()
            if isinstance(module, NormLayer)
            for buffer in module.buffers(recurse=False)
        }
        self._now = [buffer for buffer in model.buffers() if not buffer.is_meta]
        self._untraced = [id(buffer) in statistics for buffer in self._now]
        self._before = [buffer.detach().clone() for buffer in self._now]
        self._versions = [buffer._version for buffer in self._now]

    def remember(self) -> None:
        """Copy the changed buffers, before a step."""
        self._copy(self._now, self._before)

    def restore(self) -> None:
        """Restore the buffers, before the step is computed again."""
        self._copy(self._before, self._now)

    @torch.no_grad()
    def _copy(self, source: list[torch.Tensor], target: list[torch.Tensor]) -> None:
        changed = [
            number
            for number, buffer in enumerate(self._now)
            if self._untraced[number] or buffer._version != self._versions[number]
        ]
        if changed:
            foreach_copy_(
                [target[number] for number in changed], [source[number] for number in changed]
            )
            for number in changed:
                self._versions[number] = self._now[number]._version
