"""The mean over the replicas, sent in few bytes; what was lost on the way is sent next time.

Three ways to the mean, after what an encoding allows. Numbers of 16 bits are summed as they are.
Codes of few bits are decoded by the worker that sums a part, and its mean is encoded again: that
costs a worker as much as a ring, on any number of workers. The largest numbers lie elsewhere on
every worker, so all are sent to all: that grows with the workers.
"""

from collections.abc import Sequence

import torch

from paceline.specs import Sync
from paceline.sync.encodings import Encoding, encoding
from paceline.sync.powersgd import LowRank
from paceline.sync.transport import Transport

GATHERED = ("topk", "topk2")


class Averager:
    """Averages flat tensors over the workers of a transport, as a plan says."""

    def __init__(self, sync: Sync, transport: Transport) -> None:
        self._sync, self._transport = sync, transport
        self._compresses = sync.compress != "none"
        self._low_rank = LowRank(sync.rank) if sync.compress == "powersgd" else None
        self._encoding: Encoding | None = None
        if self._compresses and self._low_rank is None:
            self._encoding = encoding(sync.compress, keep=sync.keep)

    @property
    def loses(self) -> bool:
        """Whether what is sent is less than the whole, so that a rest must be kept."""
        return self._compresses and self._sync.feedback > 0

    def average(
        self,
        values: torch.Tensor,
        rest: torch.Tensor | None,
        shapes: Sequence[torch.Size],
        *,
        step: int,
    ) -> torch.Tensor:
        """The mean over the workers of `values`, in place; `rest` is what was lost, before and
        after. `shapes`: of the tensors that lie behind each other in it."""
        if not self._compresses or step <= self._sync.warmup:
            return self._transport.average(values)
        if rest is not None:
            values.add_(rest, alpha=self._sync.feedback)
            rest.copy_(values)
        if self._low_rank is not None:
            self._low_rank.average(values, rest, shapes, self._transport, step)
        elif self._sync.compress == "bf16":
            self._sum(values, rest)
        elif self._sync.compress in GATHERED:
            self._gather(values, rest)
        else:
            self._scatter(values, rest)
        return values

    def _sum(self, values: torch.Tensor, rest: torch.Tensor | None) -> None:
        short = values.bfloat16()
        if rest is not None:
            rest.sub_(short)
        values.copy_(self._transport.average(short))

    def _gather(self, values: torch.Tensor, rest: torch.Tensor | None) -> None:
        code = self._code
        message = code.encode(values)
        if rest is not None:
            rest.sub_(code.decode(message, len(values)))
        values.zero_()
        for each in self._transport.gather(message):
            values.add_(code.decode(each, len(values)), alpha=1 / self._transport.workers)

    def _scatter(self, values: torch.Tensor, rest: torch.Tensor | None) -> None:
        code, workers = self._code, self._transport.workers
        each = -(-len(values) // workers)
        padded = torch.nn.functional.pad(values, (0, workers * each - len(values)))
        messages = [code.encode(part) for part in torch.split(padded, each)]
        if rest is not None:
            sent = torch.cat([code.decode(message, each) for message in messages])
            rest.sub_(sent[: len(values)])
        mean = torch.zeros(each, device=values.device)
        for message in self._transport.transpose(messages):
            mean.add_(code.decode(message, each), alpha=1 / workers)
        message = code.encode(mean)
        if rest is not None:
            # What the second encoding loses of the mean of a part is owed by who encoded it; a mean
            # takes one part in `workers` of what one of them sends.
            begin = min(len(values), self._transport.rank * each)
            mine = rest[begin : begin + each]
            lost = mean - code.decode(message, each)
            mine.add_(lost[: len(mine)], alpha=workers)
        found = [code.decode(each_, each) for each_ in self._transport.gather(message)]
        values.copy_(torch.cat(found)[: len(values)])

    @property
    def _code(self) -> Encoding:
        assert self._encoding is not None
        return self._encoding
