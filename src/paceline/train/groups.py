"""The process groups of a worker: made here, replaced here, and referred to nowhere else.

Everything else asks `Groups` at the moment it communicates, so that after a failure the groups of
the next generation can take the place of broken ones inside the living process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from paceline.cluster.interfaces import Interface
from paceline.specs import Run
from paceline.train import devices
from paceline.train.place import Place
from paceline.train.rendezvous import Meeting, meet
from paceline.train.store import SignedStore

if TYPE_CHECKING:  # torch.distributed defines PrefixStore conditionally
    from torch._C._distributed_c10d import PrefixStore
else:
    from torch.distributed import PrefixStore


class Groups:
    """How one worker reaches the others; with a single worker there is nobody to reach."""

    def __init__(self, place: Place, device: torch.device, meeting: Meeting | None) -> None:
        self.place = place
        self.device = device
        self._meeting = meeting
        self._store: SignedStore | None = None
        if meeting is not None:
            self._join(meeting, place.generation)

    @property
    def backend(self) -> str:
        """What carries the collectives."""
        return dist.get_backend() if self._store else "none"

    @property
    def interface(self) -> Interface | None:
        """The network interface towards the other workers."""
        return self._meeting.interface if self._meeting else None

    def mesh(self, *, replicas: int, shards: int) -> DeviceMesh:
        """The workers as a grid: neighbours, on one node where it fits, are shards of a copy."""
        if replicas == 1:
            return init_device_mesh(self.device.type, (shards,), mesh_dim_names=("shards",))
        return init_device_mesh(
            self.device.type, (replicas, shards), mesh_dim_names=("replicas", "shards")
        )

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all workers, in place."""
        if self._store is not None:
            dist.all_reduce(values)
        return values

    def sum_later(self, values: torch.Tensor) -> "dist.Work | None":
        """Begin to sum over all workers in place; wait for it before reading."""
        return dist.all_reduce(values, async_op=True) if self._store is not None else None

    def leave(self) -> None:
        """Give the groups up."""
        if self._store is not None:
            dist.destroy_process_group()
            self._store = None

    def _join(self, meeting: Meeting, generation: int) -> None:
        devices.use_interface(meeting.interface.name)
        # C++ keeps only half of a store written in Python: the reference here keeps the other.
        self._store = SignedStore(meeting.store, meeting.secret)
        dist.init_process_group(
            devices.backend_for(self.device),
            store=PrefixStore(f"generation-{generation}", self._store),
            rank=self.place.rank,
            world_size=self.place.workers,
            device_id=None if self.device.type == "cpu" else self.device,
        )


@contextmanager
def joined(
    run: Run | None, place: Place, device: torch.device, port: int | None
) -> Iterator[Groups]:
    """The groups of this worker, given up at a good end."""
    meeting = meet(run, place, port) if run is not None and place.workers > 1 else None
    groups = Groups(place, device, meeting)
    yield groups
    # After an error the groups are left as they are: taking leave of peers that are gone can hang.
    groups.leave()
