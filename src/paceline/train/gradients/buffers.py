"""Copies of the buffers that a forward pass changes, for a step that is computed again."""

from dataclasses import dataclass

import torch
from torch import nn

from paceline.comm.torch_internals import BatchNormLayer, NormLayer, foreach_copy_, own_buffers


@dataclass
class Buffer:
    """A buffer of a model, and its value when the step began."""

    name: str
    home: dict[str, torch.Tensor | None]
    """The buffers of its module; a forward may assign another tensor there."""
    key: str
    untraced: bool
    """Whether it may change without a new version, as torch changes running statistics."""
    of_batch_norm: bool
    before: torch.Tensor
    seen: torch.Tensor | None
    version: int

    @property
    def now(self) -> torch.Tensor:
        """The current value."""
        value = self.home[self.key]
        assert value is not None
        return value

    @property
    def may_have_changed(self) -> bool:
        """Whether it may differ from `before`, without a look at its values."""
        if self.untraced:
            return True
        value = self.home[self.key]
        return value is not self.seen or (value is not None and value._version != self.version)

    def look(self) -> None:
        """Note the current tensor and its version."""
        self.seen = self.home[self.key]
        self.version = self.seen._version if self.seen is not None else 0


class Buffers:
    """A model's buffers as they were when the step began.

    Only buffers that may have changed are copied: running statistics, which torch changes without a
    new version, and other buffers with a new version; not constant masks and tables, which may be
    large.
    """

    def __init__(self, model: nn.Module) -> None:
        self._all: list[Buffer] = []
        known: set[int] = set()
        for prefix, module in model.named_modules():
            for key, value in own_buffers(module).items():
                if value is None or value.is_meta or id(value) in known:
                    continue
                known.add(id(value))
                self._all.append(
                    Buffer(
                        name=f"{prefix}.{key}" if prefix else key,
                        home=own_buffers(module),
                        key=key,
                        untraced=isinstance(module, NormLayer),
                        of_batch_norm=isinstance(module, BatchNormLayer),
                        before=value.detach().clone(),
                        seen=value,
                        version=value._version,
                    )
                )
        self.own = [each for each in self._all if not each.of_batch_norm]
        """The buffers that are not batch normalization's."""

    def __bool__(self) -> bool:
        """Whether the model has buffers."""
        return bool(self._all)

    def remember(self) -> None:
        """Copy the changed buffers, before a step."""
        changed = self._changed()
        if not changed:
            return
        for each in changed:
            if each.before.shape != each.now.shape or each.before.dtype != each.now.dtype:
                each.before = torch.empty_like(each.now)
        with torch.no_grad():
            foreach_copy_([each.before for each in changed], [each.now for each in changed])
        for each in changed:
            each.look()

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the buffers, before the step is computed again."""
        for each in self._all:
            if each.may_have_changed and each.home[each.key] is not each.seen:
                each.home[each.key] = each.seen  # a forward has assigned another tensor
        changed = self._changed()
        if changed:
            foreach_copy_([each.now for each in changed], [each.before for each in changed])
        for each in changed:
            each.look()

    @torch.no_grad()
    def restore_where(self, flag: torch.Tensor) -> None:
        """Restore the buffers where a flag of the device is 1, without reading it."""
        for each in self._changed():
            if each.before.shape == each.now.shape and each.before.dtype == each.now.dtype:
                each.now.copy_(torch.where(flag > 0, each.before, each.now))

    @torch.no_grad()
    def find_untraced(self) -> None:
        """Find the buffers that a forward changes without a new version, by their values."""
        for each in self.own:
            if not each.may_have_changed and not torch.equal(each.now, each.before):
                each.untraced = True

    def _changed(self) -> list[Buffer]:
        return [
            each for each in self._all if each.may_have_changed and each.home[each.key] is not None
        ]
