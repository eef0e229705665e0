"""Members in these tests have no processes of their own."""

from pathlib import Path

import pytest

from paceline.membership import participant
from paceline.membership.consensus import AcceptorState
from paceline.membership.deaths.last_votes import LastVotes
from paceline.specs.runs.roster import Member


class KeptVotes(LastVotes):
    """Stays when a member closes: all others would seem to have ended, too."""

    def close(self, member: Member, state: AcceptorState) -> None:
        """Do nothing."""


@pytest.fixture
def kept_votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participant, "LastVotes", lambda secret: KeptVotes(secret, tmp_path))
