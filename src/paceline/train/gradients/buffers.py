"""What a forward changes beside what it returns, for a step that has to be computed again."""

import torch
from torch import nn

from paceline.comm.torch_internals import NormLayer, foreach_copy_


class Buffers:
    """The buffers of a model, as a step began with them.

    Copied is what may have changed: running statistics, which torch changes without a trace, and
    any other buffer whose version says so; masks and tables, which may be large, do not.
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
        """A step begins."""
        self._copy(self._now, self._before)

    def restore(self) -> None:
        """It is computed again."""
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
