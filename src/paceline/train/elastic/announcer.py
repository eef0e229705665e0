"""Publish the leader of each generation in the run folder, also after its disk was full."""

import sys
import threading
import time

from paceline.membership.rendezvous.address_files import announce_leader
from paceline.specs import Member, Roster, Run

_RETRY_SECONDS = 0.5


class Announcer:
    """Publishes leaders. The members continue while the folder cannot be written; processes that
    want to join find them once it can."""

    def __init__(self, run: Run, secret: bytes) -> None:
        self._run, self._secret = run, secret
        self._newest = -1

    def announce(self, roster: Roster, leader: Member) -> None:
        """Publish a generation's leader, now or as soon as the folder can be written."""
        self._newest = roster.generation
        try:
            announce_leader(self._run, self._secret, roster.generation, leader)
        except OSError as error:
            why = f"the leader of generation {roster.generation} cannot be published: {error}"
            print(f"{why}; no worker can join until it is", file=sys.stderr)
            threading.Thread(
                target=self._retry, args=(roster.generation, leader), name="announcer", daemon=True
            ).start()

    def _retry(self, generation: int, leader: Member) -> None:
        while self._newest == generation:
            time.sleep(_RETRY_SECONDS)
            try:
                announce_leader(self._run, self._secret, generation, leader)
            except OSError:
                continue
            return
