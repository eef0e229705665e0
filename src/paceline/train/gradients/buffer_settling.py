"""Agreement of the workers on buffers that forward changes: by the user's rules, after each step.

Batch normalization has its own (`parallel/batch_norm.py`). A buffer that each forward changes
alike, whatever its samples, such as a counter of steps, is equal on all workers already.
"""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from paceline.data.loader import Batch
from paceline.specs import PacelineError
from paceline.specs.units import first_few
from paceline.train.gradients.buffers import Buffer, Buffers
from paceline.user.buffer_rules import BufferRules, rule_of


@dataclass
class BufferSettling:
    """Makes the buffers that forward changes equal on all workers of a generation."""

    buffers: Buffers
    rules: BufferRules | None
    steady: Collection[str]
    """Names of the buffers that each forward changes alike, whatever its samples."""
    group: "dist.ProcessGroup | None"
    """The workers that divide the global batch; None for a single one."""
    conflict: str | None
    """The setting under which workers cannot agree on buffers in each step."""
    _agreed: list[Buffer] | None = field(default=None, init=False)
    """The buffers to settle in each step; None before the first."""

    @property
    def needed(self) -> bool:
        """Whether forward may leave other values on other workers."""
        return self.group is not None and bool(self.buffers.own)

    def settle(self, batch: Batch) -> None:
        """Settle the buffers after a step's forwards. All workers call this together."""
        if self._agreed is None:
            self.buffers.find_untraced()
        changed = [
            each
            for each in self.buffers.own
            if each.may_have_changed and each.name not in self.steady
        ]
        self._check(changed)
        if self._agreed is None:
            self._agreed = self._agree({each.name for each in changed})
        if self._agreed:
            self._reduce(self._agreed, batch)

    def _check(self, changed: Sequence[Buffer]) -> None:
        """Raise if forward has changed a buffer that no rule settles."""
        if changed and self.conflict is not None:
            raise PacelineError(
                f"forward changes {_listed(changed)}, on which workers cannot agree in each step"
                f" with {self.conflict}",
                fix=f"train without {self.conflict}",
            )
        unsettled = [each for each in changed if rule_of(each.name, self.rules) is None]
        if unsettled:
            raise PacelineError(
                f"forward changes {_listed(unsettled)}, each worker by its own samples",
                fix=f'give Training(buffers={{"{unsettled[0].name}": "average"}}), or "sum" (of the'
                ' changes: a counter) or "worker0"',
            )
        late = [each for each in changed if self._agreed is not None and each not in self._agreed]
        if late:
            raise PacelineError(
                f"forward changes {_listed(late)}, but did not in the first step, in which the"
                " workers agreed on the buffers to settle",
                fix=f'name it: Training(buffers={{"{late[0].name}": …}})',
            )

    def _agree(self, changed: Collection[str]) -> list[Buffer]:
        """Return the buffers to settle: those that are named, or changed on any worker."""
        named = {} if self.rules is None or isinstance(self.rules, str) else self.rules
        named = {pattern: rule for pattern, rule in named.items() if pattern != "*"}
        own = [each for each in self.buffers.own if rule_of(each.name, self.rules)]
        flags = torch.tensor(
            [float(each.name in changed or rule_of(each.name, named) is not None) for each in own],
            device=own[0].now.device if own else None,
        )
        if own:
            dist.all_reduce(flags, group=self.group)
        chosen = itertools.compress(own, flags.tolist())
        return [each for each in chosen if each.name not in self.steady]

    @torch.no_grad()
    def _reduce(self, settled: Sequence[Buffer], batch: Batch) -> None:
        share = batch.samples / batch.global_samples
        is_first = dist.get_rank(self.group) == 0
        sent = []
        for each in settled:
            now = each.now.double().flatten()
            match rule_of(each.name, self.rules):
                case "average":
                    sent.append(now * share)
                case "sum":
                    sent.append(now - each.before.double().flatten())
                case _:
                    sent.append(now if is_first else torch.zeros_like(now))
        row = torch.cat(sent)
        dist.all_reduce(row, group=self.group)
        sizes = [each.now.numel() for each in settled]
        for each, found in zip(settled, torch.split(row, sizes), strict=True):
            if rule_of(each.name, self.rules) == "sum":
                found.add_(each.before.double().flatten())
            if not each.now.is_floating_point():
                found.round_()
            each.now.copy_(found.view_as(each.now))


def _listed(buffers: Sequence[Buffer]) -> str:
    names = first_few(each.name for each in buffers)
    return f"the buffer{'s' if len(buffers) > 1 else ''} {names}"
