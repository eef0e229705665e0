"""The storages of a model whose contents can be computed again, and their memory."""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from paceline.comm.torch_internals import storage_id
from paceline.parallel.deferred.host_memory import return_freed_memory
from paceline.parallel.deferred.recipes import Version

_TRIMMED_BYTES = 16 * 2**20


@dataclass(eq=False)
class Known:
    """A storage whose contents can be computed again."""

    version: Version
    storage: "weakref.ref[torch.UntypedStorage]"
    has_memory: bool = True


class Storages:
    """Known storages by the key of their tensors; those past a budget have no memory.

    `budget_bytes` returns how much memory of a device they may keep.
    """

    def __init__(self, budget_bytes: Callable[[torch.device], int]) -> None:
        self._budget_bytes = budget_bytes
        self._known: dict[int, Known] = {}
        self._resident: Counter[str] = Counter()
        """Bytes of known storages that have memory, per kind of device."""
        self._freed_bytes = 0
        """Bytes on the host since freed memory was last returned to the system."""

    @property
    def exceed_budget(self) -> bool:
        """Whether all known storages together exceed the budget of a device."""
        total: Counter[torch.device] = Counter()
        for known in self._known.values():
            total[known.version.device] += known.version.size_bytes
        return any(size > self._budget_bytes(device) for device, size in total.items())

    def of(self, tensors: Iterable[torch.Tensor]) -> list[Known]:
        """Return the known storages of some tensors, each once."""
        keys = {_key(each): None for each in tensors}
        return [self._known[key] for key in keys if key in self._known]

    def find(self, tensor: torch.Tensor) -> Known | None:
        """Return the known storage of a tensor, if it has one."""
        return self._known.get(_key(tensor))

    def add(self, storage: torch.UntypedStorage, version: Version) -> Known:
        """Add a storage that has its memory and contents."""
        key = storage_id(storage)
        known = Known(version, weakref.ref(storage, lambda _: self._forget(key)))
        self._known[key] = known
        self._resident[version.device.type] += version.size_bytes
        return known

    def give_memory(self, known: Known, *, contents: bool = True) -> None:
        """Give a storage its memory, and compute its contents if they are wanted."""
        storage = known.storage()
        if known.has_memory or storage is None:
            return
        storage.resize_(known.version.size_bytes)
        known.has_memory = True
        self._resident[known.version.device.type] += known.version.size_bytes
        if contents:
            known.version.write(storage)

    def free_if_over(self, known: Known) -> None:
        """Give the memory of a storage back if the budget is exceeded."""
        device = known.version.device
        if self._resident[device.type] > self._budget_bytes(device):
            self.free(known)

    def free(self, known: Known) -> None:
        """Give the memory of a storage back."""
        storage = known.storage()
        if known.has_memory and storage is not None:
            storage.resize_(0)
            known.has_memory = False
            self._resident[known.version.device.type] -= known.version.size_bytes
            if known.version.device.type == "cpu":
                self._freed_bytes += known.version.size_bytes
        if self._freed_bytes >= _TRIMMED_BYTES:
            self._freed_bytes = 0
            return_freed_memory()

    def free_all(self) -> None:
        """Give all memory back, and keep none from now on."""
        self._budget_bytes = lambda device: 0
        for known in self._known.values():
            self.free(known)

    def keep(self, tensor: torch.Tensor) -> None:
        """Give the storage of a tensor its memory and contents, for good."""
        self._keep(_key(tensor))

    def keep_all(self) -> None:
        """Give every storage that is still in use its memory and contents, for good."""
        for key in list(self._known):
            self._keep(key)

    def _keep(self, key: int) -> None:
        if (known := self._known.get(key)) is not None:
            self.give_memory(known)
            self._forget(key)

    def _forget(self, key: int) -> None:
        known = self._known.pop(key, None)
        if known is not None and known.has_memory:
            self._resident[known.version.device.type] -= known.version.size_bytes


def _key(tensor: torch.Tensor) -> int:
    """Return what identifies a tensor's storage; 0 if it has none."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return 0
    return storage_id(tensor.untyped_storage())
