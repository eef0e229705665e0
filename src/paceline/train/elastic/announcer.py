"""Publish the leader of each generation in the run folder, also after its disk was full."""

import sys
import threading
import time

from paceline.membership.rendezvous.address_files import announce_leader
from paceline.specs import Member, Roster, Run

_RETRY_SECONDS = 0.5
_STALLED_SECONDS = 0.1
"""How long a member waits for a folder that stalls: its control plane is silent meanwhile."""


class Announcer:
    """Publishes leaders. The members continue while the folder cannot be written; processes that
    want to join find them once it can."""

    def __init__(self, run: Run, secret: bytes) -> None:
        self._run, self._secret = run, secret
        self._newest = -1

    def announce(self, roster: Roster, leader: Member) -> None:
        """Publish a generation's leader, now or as soon as the folder can be written."""
        self._newest = roster.generation
        publishing = threading.Thread(
            target=self._publish, args=(roster.generation, leader), name="announcer", daemon=True
        )
        publishing.start()
        publishing.join(_STALLED_SECONDS)

    def _publish(self, generation: int, leader: Member) -> None:
        problem: OSError | None = None
        while problem is None or self._newest == generation:
            try:
                announce_leader(self._run, self._secret, generation, leader)
                return
            except OSError as error:
                if problem is None:
                    why = f"the leader of generation {generation} cannot be published: {error}"
                    print(f"{why}; no worker can join until it is", file=sys.stderr)
                problem = error
            time.sleep(_RETRY_SECONDS)
