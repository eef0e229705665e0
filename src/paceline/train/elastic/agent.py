"""The elastic agent, which moves a worker from one generation's process groups to the next."""

import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from paceline.cluster import interfaces
from paceline.cluster.interfaces import Interface
from paceline.comm.connections import Connections
from paceline.comm.device_kind import device_kind
from paceline.comm.group_errors import CommunicationError
from paceline.comm.groups import Groups
from paceline.comm.health import GroupHealth
from paceline.comm.rendezvous import Rendezvous, hosted_store, reached_store
from paceline.comm.signing import ForgedValue
from paceline.comm.torch_internals import reset_group_count
from paceline.membership.rendezvous.address_files import awaited_leader, found_leader, secret_of
from paceline.membership.service import Begun, Hooks, Membership
from paceline.specs import Faults, Member, Placement, Roster, Run
from paceline.train.elastic.announcer import Announcer
from paceline.train.elastic.peer_copies import PeerCopies, copy_every

if TYPE_CHECKING:
    from paceline.comm.torch_internals import TCPStore


class ElasticAgent:
    """One worker's membership and process groups through all generations."""

    def __init__(
        self,
        run: Run,
        node: str,
        interface: Interface,
        secret: bytes,
        fitting: Callable[[int], int],
        device: torch.device,
    ) -> None:
        self._interface, self._secret = interface, secret
        self.work_done = partial(device_kind().work_done, device)
        self._first_generation = run.job.first_generation
        self.roster: Roster | None = None
        """Roster of the last generation known to this worker."""
        self._opened: TCPStore | None = None
        self.connections = Connections(self._foreign_ports)
        self.faults: Faults = run.plan.faults
        self.health = GroupHealth(self.connections, lambda: self.ended, self.faults.lease_seconds)
        device_kind().outlive_peers()
        every = copy_every(self.faults, run.plan.layout, run.plan.sync)
        self.copies = PeerCopies(secret, interface.address, self.faults, every) if every else None
        """Peer copies, if the plan has them."""
        self._membership = Membership(
            secret,
            interface.address,
            node,
            self.faults,
            Hooks(
                interrupt=self.interrupt,
                kill_process=_kill_process,
                work_done=self.work_done,
                open_store=self._open_store,
                announce=Announcer(run, secret).announce,
                find_leader=lambda: found_leader(run, secret),
                fitting=fitting,
                run_ended=run.outcome_file.exists,
                planned=run.plan.layout.workers,
            ),
            memory_port=self.copies.port if self.copies else 0,
        )

    @property
    def member(self) -> Member:
        """This worker's entry in the membership."""
        return self._membership.member

    @property
    def name(self) -> str:
        """This worker's name in the last generation known to it. Its membership may have been
        renamed since, if the others continued without it."""
        assert self.roster is not None
        return next(each.name for each in self.roster.members if each.is_process_of(self.member))

    @property
    def ended(self) -> bool:
        """Whether the generation has ended."""
        return self._membership.ended

    @property
    def regrouped(self) -> bool:
        """Whether the run has regrouped since it was started."""
        return self.roster is not None and self.roster.generation > self._first_generation

    @property
    def wanted(self) -> bool:
        """Whether a process waits to join, and the planned layout has room for it."""
        return self._membership.wanted

    def may_retire(self) -> bool:
        """Return whether this worker may exit because a spare can replace it."""
        return self._membership.may_retire()

    def begin(self, roster: Roster) -> None:
        """Begin the first generation."""
        self.roster = roster
        self._membership.begin(roster)

    def next(self, facts: dict[str, Any], why: str | None) -> Begun:
        """Wait for the next generation. `why`: the reason to regroup, None for a spare."""
        if self.roster is None:
            begin = self._membership.join(facts)
        else:
            begin = self._membership.leave(facts, why)
        self.roster = begin.roster
        return begin

    def regroup(self, groups: Groups, facts: dict[str, Any], why: str | None) -> Begun:
        """Leave the process groups and join those of the next generation.

        Return the generation, with the facts of its members, once this worker trains in it and its
        groups exist. The caller has released everything that holds a group.
        """
        while True:
            groups.leave()
            begin = self.next(facts, why)
            groups.placement = Placement.in_roster(begin.roster, self.name)
            if groups.placement.rank >= groups.placement.workers:
                why = None
                continue
            try:
                with self.connections.opening():
                    rendezvous = self.join_rendezvous(begin)
                groups.rejoin(groups.placement, rendezvous)
            except (CommunicationError, ForgedValue) as error:
                self.interrupt()
                reset_group_count()
                why = f"a process group could not be created: {error}"
                continue
            return begin

    def join_rendezvous(self, begin: Begun) -> Rendezvous:
        """Open the store for the rendezvous of a generation."""
        opened = self._opened
        if opened is None or begin.store != (opened.host, opened.port):
            opened = reached_store(*begin.store, lambda: self.ended)
        self._opened = None
        return Rendezvous(opened, self._secret, self._interface)

    def fail(self, message: str) -> None:
        """Tell the others that the training must end."""
        self._membership.fail(message)

    def close(self) -> None:
        """Leave the run after its end."""
        self._membership.close()
        if self.copies:
            self.copies.close()

    def interrupt(self) -> None:
        """Interrupt all communication of the generation."""
        if self.copies:
            self.copies.interrupt()
        self.health.begin_abort()
        device_kind().abort()
        self.connections.shut()

    def _open_store(self) -> int:
        with self.connections.opening():
            self._opened = hosted_store(self._interface)
        return self._opened.port

    def _foreign_ports(self) -> set[int]:
        """Return the ports of the control plane and of peer memory."""
        members = self.roster.members if self.roster else ()
        controls = {self.member.port, *(each.port for each in members)}
        return controls | {self.member.memory_port, *(each.memory_port for each in members)}


def _kill_process() -> None:
    """Kill this process, after writing where it is stuck; its launcher starts another one."""
    print("this worker is stuck in a broken collective and kills itself:", file=sys.stderr)
    sys.stderr.flush()
    faulthandler.dump_traceback(sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)


def elastic_agent(
    run: Run,
    placement: Placement,
    interface: Interface | None,
    fitting: Callable[[int], int],
    device: torch.device,
) -> ElasticAgent:
    """Return the agent of a worker; `interface` None for one that joins a run that has begun."""
    secret = secret_of(run)
    if interface is None:
        interface = interfaces.towards(awaited_leader(run, secret).address)
    return ElasticAgent(run, placement.node, interface, secret, fitting, device)
