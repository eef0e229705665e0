"""The mean over the replicas, compressed, with error feedback.

The encoding determines the collective. Numbers of 16 bits are all-reduced. For codes of few bits,
each worker decodes and sums one part, and encodes its mean again: a worker sends as much as in a
ring all-reduce, on any number of workers. The largest numbers have different positions on every
worker, so an all-gather sends all to all: its bytes grow with the number of workers.
"""

from collections.abc import Sequence

import torch

from paceline.sync.compression import CompressedSync
from paceline.sync.encodings import Encoding, encoding
from paceline.sync.powersgd import LowRank
from paceline.sync.transport import Transport

GATHERED = ("topk", "topk2")


class Averager:
    """Averages flat tensors over the workers of a transport, compressed as the settings say."""

    def __init__(self, settings: CompressedSync, transport: Transport) -> None:
        self._settings, self._transport = settings, transport
        self._compresses = settings.compressed
        self._low_rank = LowRank(settings.rank) if settings.compress == "powersgd" else None
        self._encoding: Encoding | None = None
        if self._compresses and self._low_rank is None:
            self._encoding = encoding(settings.compress, keep=settings.keep)

    @property
    def loses(self) -> bool:
        """Whether there is a compression error to keep (the residual)."""
        return self._compresses and self._settings.feedback > 0

    def average(
        self,
        values: torch.Tensor,
        residual: torch.Tensor | None,
        shapes: Sequence[torch.Size],
        *,
        step: int,
    ) -> torch.Tensor:
        """Average `values` over the workers, in place, and update the residual.

        `shapes` are those of the tensors concatenated in `values`.
        """
        if not self._compresses or step <= self._settings.warmup:
            return self._transport.average(values)
        if residual is not None:
            values.add_(residual, alpha=self._settings.feedback)
            residual.copy_(values)
        if self._low_rank is not None:
            self._low_rank.average(values, residual, shapes, self._transport, step)
        elif self._settings.compress == "bf16":
            self._sum(values, residual)
        elif self._settings.compress in GATHERED:
            self._gather(values, residual)
        else:
            self._scatter(values, residual)
        return values

    def _sum(self, values: torch.Tensor, residual: torch.Tensor | None) -> None:
        short = values.bfloat16()
        if residual is not None:
            residual.sub_(short)
        values.copy_(self._transport.average(short))

    def _gather(self, values: torch.Tensor, residual: torch.Tensor | None) -> None:
        code = self._code
        message = code.encode(values)
        if residual is not None:
            residual.sub_(code.decode(message, len(values)))
        values.zero_()
        for each in self._transport.gather(message):
            values.add_(code.decode(each, len(values)), alpha=1 / self._transport.workers)

    def _scatter(self, values: torch.Tensor, residual: torch.Tensor | None) -> None:
        code, workers = self._code, self._transport.workers
        each = -(-len(values) // workers)
        padded = torch.nn.functional.pad(values, (0, workers * each - len(values)))
        messages = [code.encode(part) for part in torch.split(padded, each)]
        if residual is not None:
            sent = torch.cat([code.decode(message, each) for message in messages])
            residual.sub_(sent[: len(values)])
        mean = torch.zeros(each, device=values.device)
        for message in self._transport.transpose(messages):
            mean.add_(code.decode(message, each), alpha=1 / workers)
        message = code.encode(mean)
        if residual is not None:
            # The worker that encodes the mean of a part keeps its error, times `workers`: each
            # worker's message has a weight of 1 / `workers` in the mean.
            begin = min(len(values), self._transport.rank * each)
            mine = residual[begin : begin + each]
            lost = mean - code.decode(message, each)
            mine.add_(lost[: len(mine)], alpha=workers)
        found = [code.decode(each_, each) for each_ in self._transport.gather(message)]
        values.copy_(torch.cat(found)[: len(values)])

    @property
    def _code(self) -> Encoding:
        assert self._encoding is not None
        return self._encoding
