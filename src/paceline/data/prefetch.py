"""Prefetching of the next shards during training."""

import threading
from contextlib import suppress
from types import TracebackType
from typing import Any

from paceline.data.batches import Batches


class ReadAhead:
    """A thread that follows the order ahead of the training, by a bounded number of shards.

    A dataset supports it with `read_ahead` (number of shards), `shards_of(indices)` and
    `fetch(shard)`.
    """

    def __init__(self, data: Any, batches: Batches) -> None:
        self._data = data
        self._batches = batches
        self._limit: int = getattr(data, "read_ahead", 0)
        self._reached = batches.first_step
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._walk, name="read ahead", daemon=True)

    def __enter__(self) -> "ReadAhead":
        if self._limit:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._limit:
            # Abandon a large shard in flight: a run that is asked to stop has only seconds, and a
            # partial shard is not used.
            self._thread.join(timeout=1.0)

    def reached(self, step: int) -> None:
        """Report the step that the training has reached."""
        if not self._limit:
            return
        with self._changed:
            self._reached = step
            self._changed.notify()

    def _walk(self) -> None:
        # The training meets the same error when it needs the shard, and reports it there.
        with suppress(Exception):
            needed: dict[Any, tuple[int, int]] = {}  # first and last known step
            for step, indices in enumerate(self._batches, self._batches.first_step):
                for shard in self._data.shards_of(indices):
                    if shard not in needed:
                        if not self._may_fetch(needed):
                            return
                        self._data.fetch(shard)
                    first, _ = needed.get(shard, (step, step))
                    needed[shard] = first, step

    def _may_fetch(self, needed: dict[Any, tuple[int, int]]) -> bool:
        """Wait until few enough shards are ahead of the training; False when it is over."""

        def few_or_ended() -> bool:
            ahead = sum(first > self._reached for first, _ in needed.values())
            return self._ended or ahead < self._limit

        with self._changed:
            self._changed.wait_for(few_or_ended)
            reached, ended = self._reached, self._ended
        # The training has finished these; if they recur, they are fetched again.
        for shard in [shard for shard, (_, last) in needed.items() if last < reached]:
            del needed[shard]
        return not ended
