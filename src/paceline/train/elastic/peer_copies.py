"""Peer copies of a training's state: made every few steps, restored after a loss."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from paceline.checkpoints.manifest import Manifest
from paceline.checkpoints.saved_state import SavedState
from paceline.checkpoints.saver import Snapshot
from paceline.parallel.fitted_layout import everybody_has_all
from paceline.peers.inventory import Inventory, newest_whole
from paceline.peers.memory_client import Peer
from paceline.peers.peer_memory import Copied, PeerMemory
from paceline.peers.restored_storage import PartLost, restored_storage
from paceline.specs import Faults, Layout, Roster, SyncSettings

COPY_EVERY = 10
"""Default number of steps between copies."""


def copy_every(faults: Faults, layout: Layout, sync: SyncSettings) -> int:
    """Return the number of steps between copies; 0 for no copies."""
    if not faults.regroup or layout.workers == 1:
        return 0
    if faults.copy_every is not None:
        return faults.copy_every
    return 0 if everybody_has_all(layout, sync) else COPY_EVERY


class PeerCopies:
    """A worker's peer copies of its own state, and those that it holds for others."""

    def __init__(self, secret: bytes, address: str, faults: Faults, every: int) -> None:
        self._faults, self._every = faults, every
        self._memory = PeerMemory(secret, address, self._copied)
        self._next = every
        self._interrupted = False
        self._report: Callable[[int, str | None], None] = lambda step, why: None

    @property
    def port(self) -> int:
        """The port on which others read this worker's memory."""
        return self._memory.port

    def report_to(self, report: Callable[[int, str | None], None]) -> None:
        """Call this after every copy, with its step and the reason if it failed."""
        self._report = report

    def is_due(self, step: int) -> bool:
        """Return whether to copy after this step, the same on all workers."""
        return step >= self._next

    def copy(self, snapshot: Snapshot) -> None:
        """Start to copy the state after a step."""
        self._next = snapshot.head.step + self._every
        self._memory.copy(snapshot)

    def interrupt(self) -> None:
        """Interrupt copying and restoring; callable from any thread."""
        self._interrupted = True
        self._memory.interrupt()

    def facts(self) -> dict[str, Any]:
        """Return facts about what this worker holds, as JSON values that most workers share."""
        held = self._memory.inventory()
        return {"held": held.relative().model_dump(mode="json"), "held_from": held.origins}

    def begin(self, roster: Roster, name: str, step: int, *, regrouped: bool) -> None:
        """Begin a generation after a step; after a regroup, which may lose copies, copy soon."""
        self._interrupted = False
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
        restore_state: Callable[[SavedState], None],
        roster: Roster,
        name: str,
        fact: Callable[[str], list[Any]],
        all_agree: Callable[[bool], bool],
        *,
        oldest_step: int,
    ) -> Manifest | None:
        """Restore the newest state that the survivors hold together, if there is one.

        `fact` returns one of the members' `facts`, by rank. `oldest_step`: ignore older states;
        continuing from before a checkpoint, and later from that checkpoint, would disagree on the
        steps taken. All workers call this together.
        """
        inventories = _inventories(roster, fact("held"), fact("held_from"))
        moment = newest_whole(inventories)
        if moment is None or moment.step < oldest_step:
            return None
        peers = {
            each.name: Peer(each.address, each.memory_port, each.node) for each in roster.members
        }
        found: Manifest | None = None
        try:
            with restored_storage(
                self._memory,
                moment,
                inventories,
                peers,
                name=name,
                generation=roster.generation,
                together=roster.names[: roster.training],
            ) as saved:
                restore_state(saved)
                found = saved.manifest
        except PartLost as error:
            print(f"could not restore step {moment.step} from peers: {error}", file=sys.stderr)
        return found if all_agree(found is not None) else None

    def close(self) -> None:
        """Drop all copies."""
        self._memory.close()

    def _copied(self, step: int, result: Copied | str) -> None:
        why = result if isinstance(result, str) else None
        if why is not None:
            print(f"could not copy the state of step {step} to peers: {why}", file=sys.stderr)
        if not self._interrupted:  # by a regroup, after which the state is copied again
            self._report(step, why)


def _inventories(
    roster: Roster, held: Sequence[Any], origins: Sequence[Any]
) -> dict[str, Inventory]:
    """Return each member's inventory by its name; most members share one value in `held`."""
    read: dict[int, Inventory] = {}
    for value in held:
        if id(value) not in read:
            read[id(value)] = Inventory.model_validate(value)
    return {
        name: read[id(value)].absolute(at)
        for name, value, at in zip(roster.names, held, origins, strict=True)
    }
