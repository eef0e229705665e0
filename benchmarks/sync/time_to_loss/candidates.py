"""What is compared, and what each may be tuned by: the same number of trials for all.

Baselines are bare PyTorch loops: one rank alone, DistributedDataParallel, its fp16 hook, PyTorch's
periodic averager (local SGD), and torchft's DiLoCo. What is ours goes through Paceline's trainer.
All take the same batch, except for one rank alone once more, which may take a smaller one: on few
samples a small model learns most from each, and who has only one device is free to do so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

Kind = Literal["solo", "ddp", "fp16", "local_sgd", "torchft", "paceline"]
TRIALS = 6
USUAL_BUCKET_MEGABYTES = 25.0
"""DDP's own, with which its first bucket is smaller."""
_FINE = (0.5, 0.7, 1, 1.4, 2, 2.8)
_COARSE = (0.5, 1, 2)
_LARGE = (1, 2, 2.8)
"""For those that average over several workers: in a first sweep half the usual rate was always too
low for them."""


@dataclass(frozen=True)
class Trial:
    """One setting of a candidate."""

    kind: Kind
    rate: float = 1.0
    """Learning rate, as a multiple of the model's usual one."""
    part: float = 1.0
    """Of the usual batch."""
    bucket_megabytes: float = USUAL_BUCKET_MEGABYTES
    every: int = 0
    """Steps between two exchanges; of ours, `sync` says so."""
    overlap: int = 0
    sync: str = ""
    """What `paceline run --sync` would be given."""

    def short(self) -> str:
        """What a table has room for."""
        words = [self.sync, f"rate x{self.rate:g}"]
        words += [f"batch x{self.part:g}"] if self.part != 1 else []
        usual = self.bucket_megabytes == USUAL_BUCKET_MEGABYTES
        words += [] if usual else [f"bucket {self.bucket_megabytes:g} MB"]
        words += [f"every {self.every}"] if self.every else []
        words += [f"overlap {self.overlap}"] if self.overlap else []
        return ", ".join(filter(None, words))


def _rates(kind: Kind, sync: str = "") -> list[Trial]:
    return [Trial(kind, rate, sync=sync) for rate in _FINE]


def _ours(*syncs: str) -> list[Trial]:
    return [Trial("paceline", rate, sync=sync) for sync, rate in product(syncs, _LARGE)]


def _buckets(kind: Kind) -> list[Trial]:
    sizes = (USUAL_BUCKET_MEGABYTES, 1.0, 0.2)
    return [Trial(kind, rate, bucket_megabytes=size) for rate, size in product((1, 2), sizes)]


CANDIDATES: dict[str, Sequence[Trial]] = {
    "solo": _rates("solo"),
    "solo, smaller batch": [
        Trial("solo", rate, part) for part, rate in product((0.5, 0.25), _COARSE)
    ],
    "DDP": _buckets("ddp"),
    "DDP fp16": _buckets("fp16"),
    "local SGD": [
        Trial("local_sgd", rate, every=every) for every, rate in product((5, 20), _LARGE)
    ],
    "torchft DiLoCo": [
        Trial("torchft", rate, every=every, overlap=overlap)
        for (every, overlap), rate in product(((10, 0), (20, 5)), _LARGE)
    ],
    "allreduce": _rates("paceline", "allreduce"),
    "allreduce int8": _rates("paceline", "allreduce:compress=int8"),
    "allreduce topk": _ours(
        "allreduce:compress=topk,keep=0.01", "allreduce:compress=topk,keep=0.05,warmup=10"
    ),
    "local": _ours("local:every=5", "local:every=20"),
    "local int8 overlapped": _ours(
        "local:every=5,overlap=3,compress=int8", "local:every=12,overlap=4,compress=int8"
    ),
    "diloco int8 overlapped": _ours(
        "diloco:every=10,overlap=4,compress=int8,outer_momentum=0.4",
        "diloco:every=20,overlap=5,compress=int8,outer_momentum=0.6",
    ),
    "sparseloco": _ours("sparseloco:every=10,overlap=2", "sparseloco:every=20,overlap=5"),
    "auto": _rates("paceline", "auto"),
}
"""The trials of each, by its name."""
