"""Join and leave a worker's process groups, and start the agent that replaces them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from paceline.comm.group_errors import PeerLost
from paceline.comm.groups import Groups
from paceline.comm.rendezvous import RENDEZVOUS_TIMEOUT_SECONDS, RendezvousTimeout, join_rendezvous
from paceline.membership.service import Ended
from paceline.specs import DeviceFailed, Member, Placement, Roster, Run, RunOver
from paceline.specs.base import Spec
from paceline.train.elastic.agent import ElasticAgent, elastic_agent
from paceline.train.elastic.same_software import refuse_different, software


@contextmanager
def joined(
    run: Run, placement: Placement, device: torch.device, port: int | None
) -> Iterator[Groups]:
    """Join this worker's groups, and leave them on success; a lost peer ends the run."""
    with joined_elastic(run, placement, device, port, None) as (groups, _):
        yield groups


@contextmanager
def joined_elastic(
    run: Run | None,
    placement: Placement,
    device: torch.device,
    port: int | None,
    fitting: Callable[[int], int] | None,
) -> Iterator[tuple[Groups, ElasticAgent | None]]:
    """Join this worker's groups, start the agent that replaces them, and leave them on success.

    `fitting(members)`: the number of members that can train. Without it there is no agent, and a
    lost peer ends the run.
    """
    if run is None or (placement.workers == 1 and not placement.joins):
        yield Groups(placement, device, None), None
        return
    rendezvous = None if placement.joins else join_rendezvous(run, placement, port)
    agent = elastic_agent(run, placement, rendezvous, fitting, device) if fitting else None
    try:
        groups = Groups(placement, device, rendezvous, agent.health if agent else None)
        if agent is None:
            groups.authenticate()
        elif not placement.joins:
            agent.begin(_first_roster(groups, agent.member))
        del rendezvous  # the groups close its store when they join the next generation
    except PeerLost as error:
        if not isinstance(error.__cause__, dist.DistStoreError):
            raise
        raise RendezvousTimeout(
            f"some workers did not arrive within {RENDEZVOUS_TIMEOUT_SECONDS:.0f} s: {error}",
            fix=f"find the worker without a log in {run.logs}, and check its node",
        ) from error
    try:
        yield groups, agent
    except BaseException as error:
        # Do not leave the groups: leaving can hang if peers are gone.
        if agent and not isinstance(error, Ended | RunOver | DeviceFailed):
            agent.fail(f"worker {groups.placement.rank} failed: {error}")
        raise
    groups.leave()
    if agent:
        agent.close()


class _Arrival(Spec):
    """What a worker tells worker 0 when it arrives."""

    member: Member
    software: dict[str, str] | None = None
    """Versions on its node, from one worker of each node."""


def _first_roster(groups: Groups, own: Member) -> Roster:
    """Return the roster of the workers that the launcher started, the same on all of them."""
    placement = groups.placement
    arrival = _Arrival(member=own, software=software() if placement.leads_node else None)
    arrivals = groups.collect("member", arrival.model_dump_json())
    if placement.rank == 0:
        arrived = [_Arrival.model_validate_json(each) for each in arrivals]
        refuse_different((each.member.node, each.software) for each in arrived if each.software)
        found = Roster(
            generation=placement.generation,
            members=tuple(each.member for each in arrived),
            training=placement.workers,
        )
        groups.publish("roster", found.model_dump_json())
        return found
    return Roster.model_validate_json(groups.read_published("roster"))
