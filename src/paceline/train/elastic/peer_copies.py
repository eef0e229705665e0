"""A training's state in its workers' memory: copied every few steps, taken up after a loss."""

import sys
from collections.abc import Callable
from typing import Any

from paceline.checkpoints.manifest import Manifest
from paceline.checkpoints.saver import Snapshot
from paceline.checkpoints.storage import Readable
from paceline.parallel.fitted_layout import everybody_has_all
from paceline.peers.inventory import Holdings, newest_whole
from paceline.peers.memory_client import Peer
from paceline.peers.peer_memory import Copied, PeerMemory
from paceline.peers.restored_storage import PartLost, restored_storage
from paceline.specs import Faults, Layout, Roster, Sync

COPY_EVERY = 10
"""Steps, where the plan does not say how many."""


def copy_every(faults: Faults, layout: Layout, sync: Sync) -> int:
    """Steps between copies; 0 where there are none."""
    if not faults.regroup or layout.workers == 1:
        return 0
    if faults.copy_every is not None:
        return faults.copy_every
    return 0 if everybody_has_all(layout, sync) else COPY_EVERY


class Copies:
    """One worker's copies, and those that it keeps for others."""

    def __init__(self, secret: bytes, address: str, faults: Faults, every: int) -> None:
        self._faults, self._every = faults, every
        self._memory = PeerMemory(secret, address, _tell)
        self._next = every

    @property
    def port(self) -> int:
        """Where others read this worker's memory."""
        return self._memory.port

    def is_due(self, step: int) -> bool:
        """Whether to copy after this step, the same on all workers."""
        return step >= self._next

    def copy(self, snapshot: Snapshot) -> None:
        """Begin to copy the state after a step."""
        self._next = snapshot.head.step + self._every
        self._memory.copy(snapshot)

    def interrupt(self) -> None:
        """Wait for nobody any more; from any thread."""
        self._memory.interrupt()

    def holdings(self) -> dict[str, Any]:
        """What this worker has, in words that JSON can hold."""
        return self._memory.holdings().model_dump(mode="json")

    def begin(self, roster: Roster, name: str, step: int, *, regrouped: bool) -> None:
        """A generation goes on after a step. Where workers were lost, or came, before it, copies
        were lost with them: the next one does not wait for its turn."""
        training = roster.members[: roster.training]
        self._memory.join(
            roster.generation,
            roster.names.index(name),
            [Peer(each.address, each.memory_port, each.node) for each in training],
            step=step,
            parity_group=self._faults.parity_group,
            parity=self._faults.parity,
        )
        self._next = step + (1 if regrouped else self._every)

    def restore(
        self,
        take_up: Callable[[Manifest, Readable], None],
        roster: Roster,
        name: str,
        held: dict[str, Any],
        all_agree: Callable[[bool], bool],
        *,
        oldest_step: int,
    ) -> Manifest | None:
        """Take up the newest state that those who are left have together, if there is one.

        `held`: what each member says that it has. `oldest_step`: what is older is left alone. A
        generation that went on from before a checkpoint, and then one from that checkpoint, would
        not agree on which steps were taken. All workers call this together.
        """
        holdings = {each: Holdings.model_validate(words) for each, words in held.items()}
        moment = newest_whole(holdings)
        if moment is None or moment.step < oldest_step:
            return None
        peers = {
            each.name: Peer(each.address, each.memory_port, each.node) for each in roster.members
        }
        found: Manifest | None = None
        try:
            with restored_storage(
                self._memory, moment, holdings, peers, name=name, generation=roster.generation
            ) as (manifest, storage):
                take_up(manifest, storage)
                found = manifest
        except PartLost as error:
            print(f"the state of step {moment.step} is lost: {error}", file=sys.stderr)
        return found if all_agree(found is not None) else None

    def close(self) -> None:
        """Drop all."""
        self._memory.close()


def _tell(step: int, result: Copied | str) -> None:
    if isinstance(result, str):
        print(f"the state of step {step} was not copied: {result}", file=sys.stderr)
