"""Paceline's own engine: PyTorch's DDP, FSDP2, tensor and pipeline parallelism."""

from typing import ClassVar

from paceline.plan.cost.engine import Engine
from paceline.plan.cost.engine_kind import Chosen, EngineKind, LayoutChoices
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.layout import Layout
from paceline.specs.plans.sync import SyncSettings, default_sync

SHARDED_LAUNCHES = 250
"""On CPUs: 80 to 170 measured alone, above 400 beside a busy neighbor (GPT example, FSDP2)."""


class Paceline(EngineKind):
    """Shards gather weights and reduce gradients in the layout's precision; replicas cast for
    products, and those of a pipeline communicate after the last micro-batch."""

    title: ClassVar[str] = "Paceline"
    choices: ClassVar[LayoutChoices] = LayoutChoices(
        recompute=("none", "selective", "block"), chunks=(1, 2), sequence="choice"
    )
    score: ClassVar[str] = "on a testbed of CPUs; on GPUs none of its runs is measured"

    def engine(
        self,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        sync: SyncSettings | None = None,
    ) -> Engine:
        """Return the properties of Paceline's engine."""
        low = 4 if precision == "fp32" else 2
        on_cpus = cluster.device.kind == "cpu"
        return Engine(
            gathered_bytes=low,
            sharded_gradient_bytes=low,
            accumulated_bytes=12,
            state_bytes=profile.state_bytes,
            overlap_shards=not on_cpus,
            sharded_launches=SHARDED_LAUNCHES if on_cpus else 0,
            overlap_piped=False,
            crossing_transfers=True,
            bucket_bytes=Layout().bucket_megabytes << 20,
            kept_cast_bytes=0 if precision == "fp32" else 2,
            buffers_for_all=True,
            sync=sync or default_sync(),
        )

    def settings(self, chosen: Chosen) -> str:
        """Return nothing: the plan's file has them."""
        del chosen
        return ""


ENGINE = Paceline()
