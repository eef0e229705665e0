"""PyTorch's FSDP without tensor or pipeline parallelism, as Accelerate starts it."""

from typing import ClassVar

from paceline.plan.cost.engine import Engine
from paceline.plan.cost.engine_kind import Chosen, EngineKind, LayoutChoices
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.sync import SyncSettings


class Fsdp(EngineKind):
    """Weights and optimizer state in fp32, gathered and reduced in 16 bits after every
    micro-batch."""

    title: ClassVar[str] = "FSDP"
    choices: ClassVar[LayoutChoices] = LayoutChoices(
        recompute=("none", "block"), tensor=False, pipeline=False
    )
    score: ClassVar[str] = "MosaicML's MPT on 8 to 512 A100 and H100, FMS"

    def engine(
        self,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        sync: SyncSettings | None = None,
    ) -> Engine:
        """Return the properties of a run in mixed precision."""
        del cluster, sync
        low = 4 if precision == "fp32" else 2
        return Engine(
            reduce_always=True,
            stops_early=True,
            gathered_bytes=low,
            sharded_gradient_bytes=low,
            state_bytes=profile.state_bytes,
        )

    def settings(self, chosen: Chosen) -> str:
        """Return the parts of Accelerate's YAML file that the layout decides."""
        replicas, shards = chosen.number("replicas"), chosen.number("shards")
        steps = chosen.batch // (replicas * shards * chosen.number("micro_batch"))
        lines = [
            "distributed_type: FSDP",
            f"num_processes: {replicas * shards}",
            f"mixed_precision: {chosen.precision}",
            f"gradient_accumulation_steps: {steps}",
            "fsdp_config:",
            "  fsdp_version: 2",
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
            "  fsdp_reshard_after_forward: true",
            f"  fsdp_activation_checkpointing: {str(chosen.recompute == 'block').lower()}",
        ]
        if replicas > 1:
            lines += [
                "parallelism_config:",
                f"  parallelism_config_dp_replicate_size: {replicas}",
                f"  parallelism_config_dp_shard_size: {shards}",
            ]
        return "\n".join([*lines, f"# per_device_train_batch_size: {chosen.number('micro_batch')}"])


ENGINE = Fsdp()
