"""Megatron-LM (Megatron Core), with its distributed optimizer."""

from typing import ClassVar

from paceline.plan.cost.engine import Engine
from paceline.plan.cost.engine_kind import Chosen, EngineKind, LayoutChoices
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.sync import SyncSettings

CONTEXT_BYTES = 1_500_000_000
"""Memory of the driver, the communication library and the allocator: assumed."""


class Megatron(EngineKind):
    """Weights in 16 bits, gradients and the optimizer's copy of the weights in fp32; replicas
    divide the optimizer state."""

    title: ClassVar[str] = "Megatron-LM"
    choices: ClassVar[LayoutChoices] = LayoutChoices(
        recompute=("none", "attention", "block"),
        chunks=(1, 2, 3, 4, 6, 8),
        equal_stages=True,
        shards="none",
        optimizer_shards=True,
        sequence="always",
    )
    score: ClassVar[str] = "Megatron-Bridge, Megatron-Core H100, SC21, MLPerf GPT-3"

    def engine(
        self,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        sync: SyncSettings | None = None,
    ) -> Engine:
        """Return the properties of a run with all of Megatron's overlaps."""
        del profile, cluster, sync
        return Engine(
            overlap_tensor="both",
            overlap_transfer=True,
            loss_in_place=True,
            weight_bytes=2,
            gathered_bytes=2,
            gradient_bytes=2 if precision == "fp16" else 4,
            state_bytes=12,
            base_bytes=CONTEXT_BYTES,
        )

    def settings(self, chosen: Chosen) -> str:
        """Return the flags of pretrain_gpt.py."""
        tensor, pipeline = chosen.number("tensor"), chosen.number("pipeline")
        chunks = chosen.number("chunks")
        flags = [
            f"--tensor-model-parallel-size {tensor}",
            f"--pipeline-model-parallel-size {pipeline}",
            f"--micro-batch-size {chosen.number('micro_batch')}",
            f"--global-batch-size {chosen.batch}",
            f"--{chosen.precision}",
            "--use-distributed-optimizer",
            "--overlap-grad-reduce",
            "--overlap-param-gather",
        ]
        if chunks > 1:
            blocks = chosen.profile.block.count // (pipeline * chunks)
            flags.append(f"--num-layers-per-virtual-pipeline-stage {blocks}")
        if tensor > 1:
            flags += ["--sequence-parallel", "--tp-comm-overlap"]
        flags += {
            "none": [],
            "attention": ["--recompute-granularity selective"],
            "block": [
                "--recompute-granularity full",
                "--recompute-method uniform",
                "--recompute-num-layers 1",
            ],
        }[chosen.recompute]
        return "\n".join(flags)


ENGINE = Megatron()
