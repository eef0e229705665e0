"""A worker's placement in its run."""

from dataclasses import dataclass

from paceline.specs.runs.roster import JOINS, Roster


@dataclass(frozen=True)
class Placement:
    """One worker's rank, node and generation."""

    rank: int = 0
    workers: int = 1
    local_rank: int = 0
    """Rank on its node."""
    local_workers: int = 1
    node: str = ""
    generation: int = 0
    """Membership generation: changes of the run's workers so far."""
    device_bound: bool = False
    """Whether the scheduler makes only its own device visible to each worker."""
    node_memory_bytes: int | None = None
    """Memory that the job may use on this node; None without a limit from the scheduler."""
    roster: Roster | None = None
    """The workers, once they differ from those that the launcher started."""

    @classmethod
    def in_roster(cls, roster: Roster, name: str) -> "Placement":
        """Return a member's placement among the training workers."""
        training = roster.model_copy(update={"members": roster.members[: roster.training]})
        rank = roster.names.index(name)
        node = roster.members[rank].node
        here = training.nodes.get(node, [])
        return cls(
            rank=rank,
            workers=roster.training,
            local_rank=here.index(rank) if rank in here else 0,
            local_workers=len(here),
            node=node,
            generation=roster.generation,
            roster=training,
        )

    @property
    def joins(self) -> bool:
        """Whether this worker was started after the rendezvous, or as a spare."""
        return self.rank == JOINS

    @property
    def leads_node(self) -> bool:
        """Whether this worker writes its node's events."""
        return self.local_rank == 0

    @property
    def nodes(self) -> int:
        """Number of nodes in the run."""
        if self.roster is not None:
            return len(self.roster.nodes)
        return self.workers // self.local_workers

    @property
    def ranks_by_node(self) -> list[list[int]]:
        """Ranks of the workers on each node."""
        if self.roster is not None:
            return list(self.roster.nodes.values())
        every = list(range(self.workers))
        firsts = range(0, self.workers, self.local_workers)
        return [every[first : first + self.local_workers] for first in firsts]

    @property
    def node_ranks(self) -> list[int]:
        """Ranks of the workers on this node."""
        if self.roster is not None:
            return self.roster.nodes[self.node]
        first = self.rank - self.local_rank
        return list(range(first, first + self.local_workers))
