"""A worker's process groups: only this module creates, replaces and stores them.

All other code asks `Groups` whenever it communicates. So after a failure, the next generation's
groups can replace broken ones inside the living process.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from paceline.cluster.interfaces import Interface, Kind
from paceline.cluster.open_files import check_connections
from paceline.comm.connections import Connections
from paceline.comm.device_kind import DEVICES, device_kind
from paceline.comm.health import GroupHealth
from paceline.comm.mesh_proof import MeshProof
from paceline.comm.rendezvous import Rendezvous
from paceline.comm.signed_store import SignedStore
from paceline.comm.torch_internals import PrefixStore, created_group
from paceline.specs import Layout, Placement


class Groups:
    """One worker's process groups; a single worker has none."""

    def __init__(
        self,
        placement: Placement,
        device: torch.device,
        rendezvous: Rendezvous | None,
        health: GroupHealth | None = None,
    ) -> None:
        self.placement = placement
        self.device = device
        self.health = health or GroupHealth(Connections())
        """Whether the groups are intact; code that communicates runs inside `communicating`."""
        self._rendezvous = rendezvous
        self._store: SignedStore | None = None
        self._proof: MeshProof | None = None
        self._opened: set[str] = set()
        self._created_groups = 0
        self._mesh: DeviceMesh | None = None
        self._replicas: dist.ProcessGroup | None = None
        self._copy: dist.ProcessGroup | None = None
        self._parts: dist.ProcessGroup | None = None
        if rendezvous is not None:
            self._join(rendezvous, placement.generation)

    @property
    def backend(self) -> str:
        """The backend of the collectives."""
        return dist.get_backend() if self._store else "none"

    @property
    def interface(self) -> Interface | None:
        """The network interface to the other workers."""
        return self._rendezvous.interface if self._rendezvous else None

    def memory_bytes(self, device: torch.device) -> int | None:
        """Return the memory that this worker may use on its device, or of the host for the CPU;
        None if tensors take no memory."""
        kind = DEVICES.get("cpu") if device.type == "cpu" else device_kind()
        return kind.memory_bytes(device, self.placement)

    def mesh(self, layout: Layout) -> DeviceMesh:
        """Return the device mesh, with one dimension for each number of the layout above 1.

        The dimensions are in the order of `Layout.position`: workers that communicate most are
        closest.
        """
        if self._mesh is None:
            names = ("pipeline", "replicas", "shards", "tensor")
            sizes = {name: getattr(layout, name) for name in names if getattr(layout, name) > 1}
            self._mesh = DeviceMesh.from_group(
                [self._created(layout.ranks_along(self.placement.rank, name)) for name in sizes]
                if len(sizes) > 1
                else _everybody(),
                self.device.type,
                mesh=torch.arange(layout.workers).view(*sizes.values()),
                mesh_dim_names=tuple(sizes),
            )
        return self._mesh

    def among_stages(self, layout: Layout, members: Collection[int]) -> "dist.ProcessGroup | None":
        """Return the group of these pipeline stages in this worker's pipeline.

        None if this worker is not in one of these stages. All workers call this together.
        """
        if len(members) == layout.pipeline:
            whole: dist.ProcessGroup = self.mesh(layout).get_group("pipeline")
            return whole
        stages = layout.ranks_along(self.placement.rank, "pipeline")
        ranks = [stages[member] for member in sorted(members)]
        if self.placement.rank in ranks:
            return self._created(ranks)
        self._created([self.placement.rank])  # NCCL splits its communicator among all workers
        return None

    def dividing_the_batch(self, layout: Layout) -> "dist.ProcessGroup | None":
        """Return the data-parallel group: the workers that divide each global batch with this one.

        All workers call this together.
        """
        if layout.data_workers == 1:
            return None
        if layout.data_workers == layout.workers:
            return dist.group.WORLD
        return self._created(layout.ranks_along(self.placement.rank, "replicas", "shards"))

    def join_replicas(self, layout: Layout, *, on_host: bool = False) -> None:
        """Create the group that synchronizes replicas, and the group of this replica's workers.

        They are separate from the engine's groups, because a separate thread communicates in them.
        With `on_host`, replicas communicate from host memory, by Gloo. All workers call this
        together.
        """
        rank = self.placement.rank
        if layout.replicas > 1:
            same_part = layout.ranks_along(rank, "replicas")
            self._replicas = self._created(same_part, on_host=on_host)
        if layout.replicas < layout.workers:
            self._copy = self._created(layout.ranks_along(rank, "pipeline", "shards", "tensor"))

    def join_parts(self, layout: Layout) -> None:
        """Create the group of workers that hold the parts of the same weights: the shards and
        tensor-parallel slices of one stage in one replica. All workers call this together."""
        inside = layout.shards * layout.tensor
        if self._parts is not None or inside == 1:
            return
        if inside == layout.workers:
            self._parts = dist.group.WORLD
        elif inside in (layout.shards, layout.tensor):
            self._parts = self.mesh(layout).get_group("shards" if layout.shards > 1 else "tensor")
        else:
            self._parts = self._created(layout.ranks_along(self.placement.rank, "shards", "tensor"))

    def sum_over_parts(self, values: torch.Tensor) -> torch.Tensor:
        """Sum over the workers that hold the parts of the same weights, in place."""
        if self._parts is not None:
            with self.health.communicating():
                dist.all_reduce(values, group=self._parts)
        return values

    def replicas(self) -> "dist.ProcessGroup | None":
        """Return the group of workers that hold the same part of the model in each replica."""
        return self._replicas

    def same_part(self, layout: Layout) -> "dist.ProcessGroup | None":
        """Return a group of the same workers as `replicas`: the one that the engine uses."""
        if layout.replicas == 1:
            return None
        if layout.replicas == layout.workers:
            return dist.group.WORLD
        replicas: dist.ProcessGroup = self.mesh(layout).get_group("replicas")
        return replicas

    def sum_in_replica(self, values: torch.Tensor) -> torch.Tensor:
        """Sum over the workers of this replica, in place."""
        if self._copy is not None:
            with self.health.communicating():
                dist.all_reduce(values, group=self._copy)
        return values

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum over all workers, in place."""
        if self._store is not None:
            with self.health.communicating():
                dist.all_reduce(values)
        return values

    def summed(self, value: float) -> float:
        """Return a number's sum over all workers; raise if an abort cut it off."""
        found = float(self.sum(torch.tensor(value, dtype=torch.float64, device=self.device)))
        self.health.check(self.device)
        return found

    def sum_later(self, values: torch.Tensor) -> "dist.Work | None":
        """Start a sum over all workers, in place; wait for the result before reading it."""
        return dist.all_reduce(values, async_op=True) if self._store is not None else None

    @contextmanager
    def among(self, members: Sequence[int]) -> "Iterator[dist.ProcessGroup | None]":
        """Create a temporary group of these workers, in which only they wait for each other.

        All workers call this together, each with its own group's members. A worker in no group
        passes only itself.
        """
        if len(members) == self.placement.workers:
            yield dist.group.WORLD
            return
        opened: set[str] = set()
        group = self._created(members, opened=opened)
        yield group
        self.health.connections.forget(opened)
        dist.destroy_process_group(group)

    def collect(self, about: str, words: str) -> list[str]:
        """Collect a text from each worker; return them by rank on worker 0, nothing elsewhere."""
        if self._store is None:
            return [words]
        self.publish(f"collected/{about}/{self.placement.rank}", words)
        if self.placement.rank:
            return []
        return [
            self.read_published(f"collected/{about}/{rank}")
            for rank in range(self.placement.workers)
        ]

    def publish(self, about: str, words: str) -> None:
        """Publish a text to the other workers under a new key."""
        if self._store is not None:
            with self.health.waiting():
                self._store.set(about, words)

    def read_published(self, about: str) -> str:
        """Wait for a text that another worker publishes, and return it."""
        assert self._store is not None, "a single worker has no other to wait for"
        with self.health.waiting():
            return self._store.get(about).decode()

    def authenticate(self) -> None:
        """Verify that only workers of this run joined; raise `Stranger` otherwise.

        All workers call this together, after the rendezvous and before they communicate.
        """
        if self._proof is not None:
            self._prove(_everybody(), self._opened)

    def leave(self) -> None:
        """Destroy the process groups."""
        if self._store is not None:
            if dist.is_initialized():
                dist.destroy_process_group()
            self._store = self._proof = self._mesh = None
            self._replicas = self._copy = self._parts = None

    def rejoin(self, placement: Placement, rendezvous: Rendezvous) -> None:
        """Join another generation's process groups, after `leave`."""
        self.placement, self._rendezvous = placement, rendezvous
        self._join(rendezvous, placement.generation)
        self.authenticate()

    def _created(
        self, ranks: Sequence[int], *, on_host: bool = False, opened: set[str] | None = None
    ) -> dist.ProcessGroup:
        """Create a group of these workers, and add its connections to `opened`.

        Whenever one worker creates a group, all do, each its own: so the number of groups names it.
        """
        # torch asks every group for a backend of the device that the workers are bound to.
        replaces = on_host and self.device.type != "cpu"
        if replaces:
            check_connections(len(ranks), by_gloo=True)
        backend = f"cpu:gloo,{self.device.type}:gloo" if replaces else None
        self._created_groups += 1
        name = f"own-{self._created_groups}-{min(ranks)}"
        with self.health.connecting() as connections:
            group = created_group(name, list(ranks), backend)
        self._prove(group, connections)
        if opened is not None:
            opened |= connections
        return group

    def _prove(self, group: dist.ProcessGroup, opened: set[str]) -> None:
        """Verify that only workers of this run are in a new group; all workers call it together,
        each with its own."""
        if self._proof is not None:
            with self.health.waiting():
                self._proof.prove(group, self.health.connections.endpoints(opened))

    def _join(self, rendezvous: Rendezvous, generation: int) -> None:
        # Rendezvous has respected the user's choice, except that a local run stays on loopback.
        os.environ["GLOO_SOCKET_IFNAME"] = rendezvous.interface.name
        if rendezvous.interface.kind is Kind.LOOPBACK:
            os.environ["NCCL_SOCKET_IFNAME"] = rendezvous.interface.name
        else:  # the user may list several
            os.environ.setdefault("NCCL_SOCKET_IFNAME", rendezvous.interface.name)
        self._created_groups = 0
        # C++ keeps only its half of a store written in Python: this reference keeps the other
        # alive.
        self._store = SignedStore(rendezvous.store, rendezvous.secret)
        with self.health.connecting() as self._opened:
            dist.init_process_group(
                device_kind().backend(self.device),
                store=PrefixStore(f"generation-{generation}", self._store),
                rank=self.placement.rank,
                world_size=self.placement.workers,
                device_id=None if self.device.type == "cpu" else self.device,
            )
        self._proof = MeshProof(
            self._store,
            rendezvous.store.port,
            rendezvous.secret,
            self.placement,
            self.device,
            self.health.is_over,
        )


def _everybody() -> dist.ProcessGroup:
    assert dist.group.WORLD is not None
    return dist.group.WORLD
