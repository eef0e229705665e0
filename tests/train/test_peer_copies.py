"""When the state is copied into the memory of peers."""

import pytest

from paceline.specs import Faults, Member, Roster
from paceline.train.elastic.peer_copies import PeerCopies


@pytest.mark.parametrize(("regrouped", "due"), [(False, 30), (True, 21)])
def test_after_a_loss_the_next_copy_does_not_wait_for_its_turn(regrouped: bool, due: int) -> None:
    copies = PeerCopies(b"only this job knows it", "127.0.0.1", Faults(), every=10)
    members = tuple(
        Member(
            name=f"n{rank}", node=f"n{rank}", address="127.0.0.1", port=1, memory_port=copies.port
        )
        for rank in range(2)
    )
    roster = Roster(generation=3, members=members, training=2)
    try:
        copies.begin(roster, "n0", 20, regrouped=regrouped)
        assert min(step for step in range(21, 40) if copies.is_due(step)) == due
    finally:
        copies.close()
