"""The process groups of a worker: made here, replaced here, and referred to nowhere else.

Everything else asks `Groups` at the moment it communicates, so that after a failure the groups of
the next generation can take the place of broken ones inside the living process.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from paceline.cluster.interfaces import Interface
from paceline.comm import devices
from paceline.comm.connections import Connections
from paceline.comm.health import GroupHealth
from paceline.comm.rendezvous import Meeting
from paceline.comm.signed_store import SignedStore
from paceline.comm.torch_internals import PrefixStore
from paceline.specs import Layout, Placement


class Groups:
    """How one worker reaches the others; with a single worker there is nobody to reach."""

    def __init__(
        self,
        placement: Placement,
        device: torch.device,
        meeting: Meeting | None,
        health: GroupHealth | None = None,
    ) -> None:
        self.placement = placement
        self.device = device
        self.health = health or GroupHealth(Connections())
        """Whether the groups still stand; a region that communicates enters `communicating`."""
        self._meeting = meeting
        self._store: SignedStore | None = None
        self._mesh: DeviceMesh | None = None
        self._replicas: dist.ProcessGroup | None = None
        self._copy: dist.ProcessGroup | None = None
        if meeting is not None:
            self._join(meeting, placement.generation)

    @property
    def backend(self) -> str:
        """What carries the collectives."""
        return dist.get_backend() if self._store else "none"

    @property
    def interface(self) -> Interface | None:
        """The network interface towards the other workers."""
        return self._meeting.interface if self._meeting else None

    def mesh(self, layout: Layout) -> DeviceMesh:
        """The workers as a grid, a dimension for each number of the layout above 1.

        The dimensions stand in the order of `Layout.position`: what exchanges most is closest.
        """
        if self._mesh is None:
            names = ("pipeline", "replicas", "shards", "tensor")
            sizes = {name: getattr(layout, name) for name in names if getattr(layout, name) > 1}
            with self.health.connecting():
                self._mesh = init_device_mesh(
                    self.device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes)
                )
        return self._mesh

    def among_stages(self, layout: Layout, members: Collection[int]) -> "dist.ProcessGroup | None":
        """The group of those workers of this worker's pipeline that stand at these places in it;
        none where this worker is not among them.

        All workers call this together: each pipeline makes its group, in the same order.
        """
        if len(members) == layout.pipeline:
            whole: dist.ProcessGroup = self.mesh(layout).get_group("pipeline")
            return whole
        pipelines = layout.workers // layout.pipeline
        return self._own_of(
            [member * pipelines + number for member in sorted(members)]
            for number in range(pipelines)
        )

    def dividing_the_batch(self, layout: Layout) -> "dist.ProcessGroup | None":
        """The group of the workers that have the other parts of this worker's batches.

        All workers call this together.
        """
        if layout.data_workers == 1:
            return None
        if layout.data_workers == layout.workers:
            return dist.group.WORLD
        stride = layout.data_workers * layout.tensor
        return self._own_of(
            list(range(stage * stride + slice_number, (stage + 1) * stride, layout.tensor))
            for stage in range(layout.pipeline)
            for slice_number in range(layout.tensor)
        )

    def join_replicas(self, layout: Layout, *, backend: str | None = None) -> None:
        """Make the groups in which replicas agree, and in which one replica's workers do.

        They are apart from those that the engine uses, since a thread of its own talks in them.
        `backend`: what replicas agree by, if not by what the device usually has. All workers call
        this together.
        """
        inside = layout.shards * layout.tensor

        def rank(stage: int, replica: int, within: int) -> int:
            return (stage * layout.replicas + replica) * inside + within

        if layout.replicas > 1:
            self._replicas = self._own_of(
                (
                    [rank(stage, replica, within) for replica in range(layout.replicas)]
                    for stage in range(layout.pipeline)
                    for within in range(inside)
                ),
                backend,
            )
        if layout.replicas < layout.workers:
            self._copy = self._own_of(
                [
                    rank(stage, replica, within)
                    for stage in range(layout.pipeline)
                    for within in range(inside)
                ]
                for replica in range(layout.replicas)
            )

    def replicas(self) -> "dist.ProcessGroup | None":
        """The group of those who hold the same part of other copies of the model."""
        return self._replicas

    def same_part(self, layout: Layout) -> "dist.ProcessGroup | None":
        """The group of those who hold the same part of other copies, as the engine knows them."""
        if layout.replicas == 1:
            return None
        if layout.replicas == layout.workers:
            return dist.group.WORLD
        replicas: dist.ProcessGroup = self.mesh(layout).get_group("replicas")
        return replicas

    def sum_in_copy(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over the workers that hold one copy of the model together, in place."""
        if self._copy is not None:
            with self.health.communicating():
                dist.all_reduce(values, group=self._copy)
        return values

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all workers, in place."""
        if self._store is not None:
            with self.health.communicating():
                dist.all_reduce(values)
        return values

    def sum_later(self, values: torch.Tensor) -> "dist.Work | None":
        """Begin to sum over all workers in place; wait for it before reading."""
        return dist.all_reduce(values, async_op=True) if self._store is not None else None

    @contextmanager
    def among(self, members: Sequence[int]) -> "Iterator[dist.ProcessGroup | None]":
        """A group of these workers for a while, in which they alone wait for each other.

        All workers call this together, each with its own members, since NCCL divides what it has
        among all; who is in no group is one by itself. Of the same two or more workers it is made
        once in a run: Gloo would find their old addresses.
        """
        if len(members) == self.placement.workers:
            yield dist.group.WORLD
            return
        with self.health.connecting() as opened:
            group = dist.new_group(members, use_local_synchronization=True)
        yield group
        self.health.connections.forget(opened)
        dist.destroy_process_group(group)

    def collected(self, about: str, words: str) -> list[str]:
        """What each worker says about something, by rank, on worker 0; nothing on the others.

        Every call is about something else: nothing in a store is said twice.
        """
        if self._store is None:
            return [words]
        self.say(f"collected/{about}/{self.placement.rank}", words)
        if self.placement.rank:
            return []
        return [self.heard(f"collected/{about}/{rank}") for rank in range(self.placement.workers)]

    def say(self, about: str, words: str) -> None:
        """Tell the other workers something, once."""
        if self._store is not None:
            with self.health.waiting():
                self._store.set(about, words)

    def heard(self, about: str) -> str:
        """What another worker says about something, as soon as it does."""
        assert self._store is not None, "a single worker has nobody to hear"
        with self.health.waiting():
            return self._store.get(about).decode()

    def leave(self) -> None:
        """Give the groups up."""
        if self._store is not None:
            if dist.is_initialized():
                dist.destroy_process_group()
            self._store = self._mesh = self._replicas = self._copy = None

    def rejoin(self, placement: Placement, meeting: Meeting) -> None:
        """Join the groups of another generation, after `leave`."""
        self.placement, self._meeting = placement, meeting
        self._join(meeting, placement.generation)

    def _own_of(
        self, every: Iterable[list[int]], backend: str | None = None
    ) -> "dist.ProcessGroup | None":
        """Make groups of workers, all together and in one order; that of this worker, if any."""
        with self.health.connecting():
            made = [(ranks, dist.new_group(ranks, backend=backend)) for ranks in every]
        return next((group for ranks, group in made if self.placement.rank in ranks), None)

    def _join(self, meeting: Meeting, generation: int) -> None:
        devices.use_interface(meeting.interface.name)
        # C++ keeps only half of a store written in Python: the reference here keeps the other.
        self._store = SignedStore(meeting.store, meeting.secret)
        with self.health.connecting():
            dist.init_process_group(
                devices.backend_for(self.device),
                store=PrefixStore(f"generation-{generation}", self._store),
                rank=self.placement.rank,
                world_size=self.placement.workers,
                device_id=None if self.device.type == "cpu" else self.device,
            )
