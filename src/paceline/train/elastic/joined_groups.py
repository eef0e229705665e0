"""Join and leave a worker's process groups, and start the agent that replaces them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist

from paceline.cluster.open_files import check_connections
from paceline.comm.device_kind import device_kind
from paceline.comm.group_errors import PeerLost
from paceline.comm.groups import Groups
from paceline.comm.rendezvous import (
    STORE_TIMEOUT_SECONDS,
    Rendezvous,
    hosted_store,
    reached_store,
)
from paceline.membership.rendezvous.address_files import RendezvousTimeout
from paceline.membership.rendezvous.node_rendezvous import NodeRendezvous
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
    try:
        groups, agent = _joined(run, placement, device, port, fitting)
    except PeerLost as error:
        if not isinstance(error.__cause__, dist.DistStoreError | dist.DistNetworkError):
            raise
        raise RendezvousTimeout(
            f"some workers did not join within {STORE_TIMEOUT_SECONDS:.0f} s: {error}",
            fix=f"see the workers' logs in {run.logs}, and check their nodes",
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

    member: Member | None
    """Its entry in the membership, if it has one."""
    node: str
    software: dict[str, str] | None = None
    """Versions on its node, from one worker of each node."""


class _Start(Spec):
    """What worker 0 tells all workers when they have arrived."""

    store: tuple[str, int]
    """Address and port of the store for their process groups."""
    roster: Roster | None


def _joined(
    run: Run,
    placement: Placement,
    device: torch.device,
    port: int | None,
    fitting: Callable[[int], int] | None,
) -> tuple[Groups, ElasticAgent | None]:
    """Return the groups and the agent of a worker, or the agent of one that joins later."""
    if placement.joins:
        agent = elastic_agent(run, placement, None, fitting, device) if fitting else None
        return Groups(placement, device, None, agent.health if agent else None), agent
    by_gloo = "gloo" in device_kind().backend(device)
    check_connections(placement.workers, by_gloo=by_gloo)
    with NodeRendezvous(run, placement, port) as meeting:
        interface = meeting.find_interface()
        agent = elastic_agent(run, placement, interface, fitting, device) if fitting else None
        # A single node's workers need no port to meet: the one that is asked for is the store's.
        store_port = port if placement.nodes == 1 else None
        store = hosted_store(interface, store_port) if placement.rank == 0 else None

        def conclude(arrivals: Sequence[str]) -> str:
            assert store is not None
            roster = _first_roster(placement, arrivals)
            return _Start(store=(store.host, store.port), roster=roster).model_dump_json()

        own = _Arrival(
            member=agent.member if agent else None,
            node=placement.node,
            software=software() if placement.leads_node else None,
        )
        start = _Start.model_validate_json(meeting.exchange(own.model_dump_json(), conclude))
    if store is None:
        store = reached_store(*start.store, lambda: False, STORE_TIMEOUT_SECONDS)
    rendezvous = Rendezvous(store, meeting.secret, interface)
    groups = Groups(placement, device, rendezvous, agent.health if agent else None)
    if agent is None:
        groups.authenticate()
    else:
        assert start.roster is not None
        agent.begin(start.roster)
    return groups, agent


def _first_roster(placement: Placement, arrivals: Sequence[str]) -> Roster | None:
    """Return the roster of the workers that the launcher started; None if they have no agents."""
    arrived = [_Arrival.model_validate_json(each) for each in arrivals]
    refuse_different((each.node, each.software) for each in arrived if each.software)
    members = tuple(each.member for each in arrived if each.member)
    if not members:
        return None
    return Roster(generation=placement.generation, members=members, training=placement.workers)
