"""Trainings that faults are put into: a layout, a way to agree, an optimizer."""

import os
import sys
from dataclasses import dataclass, field, replace

import tomli_w

WORKERS = 4
ON_SIM = os.environ.get("PACELINE_DEVICE_KIND") == "sim"
"""Whether the runs are on simulated accelerators."""
SPARES = 4 if ON_SIM else 0
"""Workers that replace those whose device has failed."""


@dataclass(frozen=True)
class Setting:
    """How the small training of these runs is divided."""

    name: str
    layout: dict[str, int] = field(default_factory=lambda: {"replicas": WORKERS})
    sync: str = "allreduce"
    sync_more: dict[str, float | int | str] = field(default_factory=dict)
    optimizer: str = "momentum"
    lease_seconds: float = 1.5
    """How long a worker may be silent."""

    @property
    def exact(self) -> bool:
        """Whether the number of workers must not change what is learnt, but for rounding."""
        return self.same_bits or (self.sync == "allreduce" and not self.sync_more)

    @property
    def same_bits(self) -> bool:
        """Whether the number of workers must not change a bit of what is learnt."""
        return self.sync == "canonical"

    @property
    def compared_with(self) -> "Setting":
        """What the undisturbed run is: on one worker, where that must learn the same."""
        return replace(self, layout={"replicas": 1}) if self.exact else self

    @property
    def agrees(self) -> bool:
        """Whether replicas have equal weights after every step; else only at the end."""
        return self.sync in ("allreduce", "canonical")

    @property
    def has_replicas(self) -> bool:
        """Whether so many workers hold the same that most of them say what is right."""
        return self.layout.get("replicas", 1) > 2 and self.agrees

    @property
    def tells(self) -> list[str]:
        """Kinds of faults inside a worker that must be found, and the worker named."""
        return [
            *([] if self.ends_by_nan else ["nan"]),
            *(["flip"] if self.has_replicas else []),
            *(["straggler"] if self.agrees else []),
        ]

    @property
    def ends_by_nan(self) -> bool:
        """Whether a NaN is found in the losses only, some steps later, and the run ends."""
        return bool(self.sync in ("canonical", "auto") or self.sync_more.get("compress"))

    def on(self, workers: int) -> "Setting":
        """The same with more or fewer replicas."""
        copies, left = divmod(workers, self.layout.get("shards", 1))
        if left:
            sys.exit(f"{self.name} cannot be divided over {workers} workers")
        return replace(self, layout=self.layout | {"replicas": copies})

    def plan(self, checkpoints: str, save_every: int, faults: int) -> str:
        """The plan of a run, as TOML."""
        return tomli_w.dumps(
            {
                "layout": self.layout,
                "sync": {"mode": self.sync, **self.sync_more},
                "saving": {
                    "every_steps": save_every,
                    "ledger": True,
                    "folder": checkpoints,
                    "keep_last": 3,
                },
                # A place in these runs fails far more often than any node would.
                "faults": {
                    "attempts": 10 * faults + 10,
                    "check_every": int(self.has_replicas),
                    "lease_seconds": self.lease_seconds,
                    "stuck_seconds": max(8.0, 3 * self.lease_seconds),
                },
            }
        )


_ALL = (
    Setting("ddp"),
    Setting("fsdp", {"shards": WORKERS}, optimizer="adamw"),
    Setting("hsdp", {"replicas": 2, "shards": 2}, optimizer="adamw"),
    Setting("int8", sync_more={"compress": "int8"}),
    Setting("canonical", sync="canonical", sync_more={"parts": WORKERS}),
    Setting("local", sync="local", sync_more={"every": 8}),
    Setting("diloco", sync="diloco", sync_more={"every": 8}),
    Setting("sparseloco", sync="sparseloco", sync_more={"every": 8, "keep": 0.1}),
    Setting("gossip", sync="gossip"),
    Setting("stale", sync="stale", sync_more={"staleness": 2}),
    Setting("easgd", sync="easgd", sync_more={"pull": 0.2}),
    Setting("auto", sync="auto"),
)
SETTINGS = {setting.name: setting for setting in _ALL}
