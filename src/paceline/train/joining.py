"""How a worker comes to its groups, and how it knows that they are broken."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from paceline.recover.membership import Ended, Over
from paceline.specs import Member, Roster, Run
from paceline.train.gathering import gathered
from paceline.train.groups import Groups
from paceline.train.place import GONE, Place
from paceline.train.rendezvous import MEETING_TIMEOUT_SECONDS, NotMet, meet


def is_loss(error: BaseException, groups: Groups) -> bool:
    """Whether an error comes from an exchange whose other end is gone, or was made to end."""
    if not isinstance(error, RuntimeError) or isinstance(error, torch.OutOfMemoryError):
        return False
    signs = (
        *GONE,
        "Socket is not connected",
        "Connection refused",
        "Timed out waiting",
        "writev",
        "readv",
        "failed to recv",
        "failed to send",
    )
    lost = isinstance(error, dist.DistError) or any(sign in str(error) for sign in signs)
    return lost or (groups.gathering is not None and groups.gathering.ended)


@contextmanager
def joined(
    run: Run | None,
    place: Place,
    device: torch.device,
    port: int | None,
    fitting: Callable[[int], int] | None = None,
) -> Iterator[Groups]:
    """The groups of this worker, given up at a good end.

    `fitting`: of so many members, how many can train; without it, a lost peer ends the run.
    """
    if run is None or (place.workers == 1 and not place.joins):
        yield Groups(place, device, None)
        return
    meeting = None if place.joins else meet(run, place, port)
    gathering = gathered(run, place, meeting, fitting) if fitting else None
    try:
        groups = Groups(place, device, meeting, gathering)
        if gathering and not place.joins:
            gathering.begin(_first_roster(groups, gathering.member))
    except dist.DistStoreError as error:
        raise NotMet(
            f"the workers did not all meet within {MEETING_TIMEOUT_SECONDS:.0f} s: {error}",
            fix=f"see in {run.logs} which of them said nothing, and how its node is",
        ) from error
    try:
        yield groups
    except BaseException as error:
        # The groups are left as they are: taking leave of peers that are gone can hang.
        if gathering and not isinstance(error, Ended | Over):
            gathering.fail(f"worker {groups.place.rank} failed: {error}")
        raise
    groups.leave()
    if gathering:
        gathering.close()


def _first_roster(groups: Groups, own: Member) -> Roster:
    """Those whom the launcher has started, as all of them know it."""
    place = groups.place
    members = groups.collected("member", own.model_dump_json())
    if place.rank == 0:
        found = Roster(
            generation=place.generation,
            members=tuple(Member.model_validate_json(each) for each in members),
            training=place.workers,
        )
        groups.say("roster", found.model_dump_json())
        return found
    return Roster.model_validate_json(groups.heard("roster"))
