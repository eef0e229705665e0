"""Proof that every process in a process group knows the run's secret.

The store's values are signed, so nobody can redirect a worker. But a stranger that reads a worker's
address there can connect to it before the expected worker does, and Gloo accepts the first. So
after a group is created, its workers prove the secret to each other over the connections that the
group will use: each sends a random nonce, then a MAC over the nonces of all workers and its rank.
"""

import hashlib
import hmac
import json
import sys
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

from paceline.comm.collectives import all_gather
from paceline.comm.connections import Endpoints
from paceline.comm.group_errors import GroupAborted, PeerLost
from paceline.comm.signing import MAC_BYTES, new_nonce
from paceline.comm.torch_internals import Store
from paceline.specs import Placement

PROOF_SECONDS = 20.0
"""Time limit of each round: a stranger may be silent."""
ARRIVAL_SECONDS = 1800.0
"""Time limit of the wait for a group's workers before: one may build its model much longer."""
_NAMING_SECONDS = 2.0
_LOOK_UP = timedelta(seconds=0.5)
"""Time of one wait for the other workers, after which a worker looks whether it is over."""


class Stranger(PeerLost):
    """A process without the run's secret took a worker's place in a process group."""


class MeshProof:
    """The proofs of one worker in one generation."""

    def __init__(
        self,
        store: Store,
        store_port: int,
        secret: bytes,
        placement: Placement,
        device: torch.device,
        is_over: Callable[[], bool],
    ) -> None:
        self._store, self._store_port = store, store_port
        self._is_over = is_over
        self._secret, self._placement, self._device = secret, placement, device
        self._rounds = 0

    def prove(self, group: dist.ProcessGroup, opened: Collection[Endpoints]) -> None:
        """Prove the secret in a group, and verify the proofs of its other workers.

        All workers call this together, each with the group that it has just created and the
        connections that this opened. Raises `Stranger`.
        """
        self._rounds += 1
        store_end = f":{self._store_port}"
        opened = [ends for ends in opened if not any(end.endswith(store_end) for end in ends)]
        # Read only to name a stranger. Smaller than what Gloo itself publishes.
        self._store.set(self._endpoints_key(self._placement.rank), json.dumps([*opened]))
        if dist.get_world_size(group) > 1:
            self._await_workers(group)
            self._prove(group, opened)

    def _await_workers(self, group: dist.ProcessGroup) -> None:
        """Wait until all workers of a group are here: the time limit of a proof is for strangers.

        The counter is not signed; who changes it can only disturb the start, as before.
        """
        key = f"arrived/{self._placement.generation}/{self._rounds}/{group.group_name}"
        everybody, begin = f"{key}/everybody", time.monotonic()
        if self._store.add(key, 1) == dist.get_world_size(group):
            self._store.set(everybody, "")
            return
        while not self._is_there(everybody):
            if self._is_over():
                raise GroupAborted("the generation ended before all workers were there")
            if time.monotonic() - begin > ARRIVAL_SECONDS:
                raise PeerLost(f"a worker does not arrive within {ARRIVAL_SECONDS:.0f} s")

    def _is_there(self, key: str) -> bool:
        """Wait for a key for a moment; return whether it is there."""
        try:
            self._store.wait([key], _LOOK_UP)
        except dist.DistStoreError:  # also if the store is gone, which the next call finds
            return self._store.check([key])
        return True

    def _prove(self, group: dist.ProcessGroup, opened: Collection[Endpoints]) -> None:
        try:
            nonces = _exchange(new_nonce(), group, self._device)
            own = self._answer(group, dist.get_rank(group), nonces)
            answers = _exchange(own, group, self._device)
        except TimeoutError as error:
            unknown = self._unknown(opened)
            if not unknown:
                raise PeerLost(str(error)) from error
            raise _reported(", ".join(unknown), "does not answer") from error
        for rank, answer in enumerate(answers):
            if not hmac.compare_digest(answer, self._answer(group, rank, nonces)):
                where = ", ".join(self._unknown(opened)) or f"worker {rank} of the group"
                raise _reported(where, "gives a wrong answer")

    def _answer(self, group: dist.ProcessGroup, rank: int, nonces: Sequence[bytes]) -> bytes:
        about = f"mesh/{self._placement.generation}/{group.group_name}/{rank}/"
        transcript = hashlib.sha256(b"".join(nonces)).digest()
        return hmac.digest(self._secret, about.encode() + transcript, "sha256")

    def _unknown(self, opened: Collection[Endpoints]) -> list[str]:
        """Return the addresses of other ends that no worker has published as its own."""
        keys = [self._endpoints_key(rank) for rank in range(self._placement.workers)]
        try:
            self._store.wait(keys, timedelta(seconds=_NAMING_SECONDS))
            published = {tuple(each) for key in keys for each in json.loads(self._store.get(key))}
        except RuntimeError:  # the store's worker has left already
            return []
        return sorted(there for here, there in opened if (there, here) not in published)

    def _endpoints_key(self, rank: int) -> str:
        return f"endpoints/{self._placement.generation}/{self._rounds}/{rank}"


def _exchange(own: bytes, group: dist.ProcessGroup, device: torch.device) -> list[bytes]:
    """Send a value to all workers of a group; return theirs, by rank.

    In Gloo each pair of workers has a connection of its own, and every one is used here. NCCL
    connects pairs when they first communicate: an all-gather connects no more than others do.
    """
    workers = dist.get_world_size(group)
    by_gloo = "gloo" in dist.get_backend(group)
    device = torch.device("cpu") if by_gloo else device
    mine = torch.frombuffer(bytearray(own), dtype=torch.uint8).to(device)
    theirs = torch.empty((workers, MAC_BYTES), dtype=torch.uint8, device=device)
    if by_gloo:
        everyone = mine.expand(workers, -1).contiguous()
        work = dist.all_to_all_single(theirs, everyone, group=group, async_op=True)
    else:
        work = all_gather(theirs, mine, group=group, async_op=True)
    assert work is not None
    try:
        work.wait(timedelta(seconds=PROOF_SECONDS))
    except RuntimeError as error:
        if work.is_completed():  # the group broke
            raise
        raise TimeoutError(f"a worker does not answer within {PROOF_SECONDS:.0f} s") from error
    return [bytes(row) for row in theirs.tolist()]


def _reported(where: str, what: str) -> Stranger:
    """Return the error, after it is in the log: the run may regroup for another worker's reason."""
    stranger = Stranger(f"a process without the run's secret in a worker's place ({where}) {what}")
    print(stranger, file=sys.stderr)
    return stranger
