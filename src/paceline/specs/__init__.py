"""What flows between the rooms: frozen models, readable as TOML and JSON. No torch here."""

from paceline.specs.cluster import (
    Cluster,
    CollectiveCost,
    Device,
    FittedNumber,
    Link,
    MatmulRate,
    Precision,
)
from paceline.specs.dry_run import DryRun, HeldParameters, Memory, RankPicture, Transfer
from paceline.specs.errors import STOPPED_EXIT_CODE, PacelineError, RunFailed
from paceline.specs.estimate import (
    Alternative,
    Amount,
    Answer,
    Estimate,
    Help,
    Origin,
    ScalingPoint,
    TrainingCost,
)
from paceline.specs.events import (
    AnyEvent,
    Damaged,
    Ended,
    Event,
    Failed,
    Finished,
    NotSaved,
    Outcome,
    Resumed,
    Saved,
    Started,
    Steps,
    Workers,
    WorkerState,
    event_adapter,
)
from paceline.specs.job import Job, Limits
from paceline.specs.layout import Layout, Position
from paceline.specs.plan import Plan
from paceline.specs.profile import LayerCost, Matmul, Profile, Timing
from paceline.specs.run import Run
from paceline.specs.saving import Best, Saving

__all__ = [
    "STOPPED_EXIT_CODE",
    "Alternative",
    "Amount",
    "Answer",
    "AnyEvent",
    "Best",
    "Cluster",
    "CollectiveCost",
    "Damaged",
    "Device",
    "DryRun",
    "Ended",
    "Estimate",
    "Event",
    "Failed",
    "Finished",
    "FittedNumber",
    "HeldParameters",
    "Help",
    "Job",
    "LayerCost",
    "Layout",
    "Limits",
    "Link",
    "Matmul",
    "MatmulRate",
    "Memory",
    "NotSaved",
    "Origin",
    "Outcome",
    "PacelineError",
    "Plan",
    "Position",
    "Precision",
    "Profile",
    "RankPicture",
    "Resumed",
    "Run",
    "RunFailed",
    "Saved",
    "Saving",
    "ScalingPoint",
    "Started",
    "Steps",
    "Timing",
    "TrainingCost",
    "Transfer",
    "WorkerState",
    "Workers",
    "event_adapter",
]
