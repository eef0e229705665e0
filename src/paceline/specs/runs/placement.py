"""Where a worker stands among the workers of its run."""

from dataclasses import dataclass

from paceline.specs.runs.roster import JOINS, Roster


@dataclass(frozen=True)
class Placement:
    """One worker's place in a run."""

    rank: int = 0
    workers: int = 1
    local_rank: int = 0
    """Its number on its node."""
    local_workers: int = 1
    node: str = ""
    generation: int = 0
    """How often the workers of the run have changed before."""
    device_bound: bool = False
    """Whether the scheduler shows each worker its own device only."""
    node_memory_bytes: int | None = None
    """Memory that the job may use on this node; unset where the scheduler does not limit it."""
    roster: Roster | None = None
    """Who the workers are, once they are not those that the launcher has started."""

    @classmethod
    def in_roster(cls, roster: Roster, name: str) -> "Placement":
        """A member's place among those that train."""
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
        """Whether this worker was started when the others had met already, or to stand by."""
        return self.rank == JOINS

    @property
    def leads_node(self) -> bool:
        """Whether this worker writes its node's events."""
        return self.local_rank == 0

    @property
    def nodes(self) -> int:
        """Nodes in the run."""
        if self.roster is not None:
            return len(self.roster.nodes)
        return self.workers // self.local_workers

    @property
    def node_ranks(self) -> list[int]:
        """The workers on this node."""
        if self.roster is not None:
            return self.roster.nodes[self.node]
        first = self.rank - self.local_rank
        return list(range(first, first + self.local_workers))
