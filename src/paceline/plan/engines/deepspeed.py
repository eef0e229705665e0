"""DeepSpeed with ZeRO-1 under Megatron's slices and stages (Megatron-DeepSpeed)."""

import json
from typing import ClassVar

from paceline.plan.cost.engine import Engine
from paceline.plan.cost.engine_kind import Chosen, EngineKind, LayoutChoices
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.sync import SyncSettings

BASE_BYTES = 7 << 30
"""Fitted to the calibration rows of BLOOM's sweep (nvidia-smi): driver, libraries, ZeRO's
buckets."""
RESERVED = 0.25
"""As above: activations that the allocator holds beyond those in use."""


class DeepSpeed(EngineKind):
    """The optimizer keeps fp32 weights, two moments and an fp32 gradient of its part; with bf16,
    gradients are also summed in fp32."""

    title: ClassVar[str] = "DeepSpeed"
    choices: ClassVar[LayoutChoices] = LayoutChoices(
        recompute=("none", "block"), shards="none", optimizer_shards=True
    )
    score: ClassVar[str] = "BLOOM's sweep on 384 A100, vTrain"

    def engine(
        self,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        sync: SyncSettings | None = None,
    ) -> Engine:
        """Return the properties: nothing overlaps, gradients follow the last backward."""
        del profile, cluster, sync
        return Engine(
            overlap_data=False,
            loss_in_place=True,
            weight_bytes=2,
            gathered_bytes=2,
            gradient_bytes=2 if precision == "fp16" else 4,
            second_gradient_bytes=0 if precision == "fp16" else 2,
            state_bytes=16,
            base_bytes=BASE_BYTES,
            reserved=RESERVED,
        )

    def settings(self, chosen: Chosen) -> str:
        """Return Megatron-DeepSpeed's flags and DeepSpeed's file."""
        micro_batch = chosen.number("micro_batch")
        flags = [
            f"--tensor-model-parallel-size {chosen.number('tensor')}",
            f"--pipeline-model-parallel-size {chosen.number('pipeline')}",
            f"--micro-batch-size {micro_batch}",
            f"--global-batch-size {chosen.batch}",
            f"--{chosen.precision}",
            "--zero-stage 1",
        ]
        if chosen.recompute == "block":
            flags += ["--checkpoint-activations", "--deepspeed-activation-checkpointing"]
        file = {
            "train_micro_batch_size_per_gpu": micro_batch,
            "train_batch_size": chosen.batch,
            "zero_optimization": {"stage": 1},
            chosen.precision: {"enabled": True},
        }
        return "\n".join([*flags, "", "ds_config.json:", json.dumps(file, indent=2)])


ENGINE = DeepSpeed()
