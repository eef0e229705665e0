"""DeepSpeed with ZeRO under Megatron's slices and stages (Megatron-DeepSpeed)."""

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
MEMORY_LOW, MEMORY_HIGH = 0.82, 1.18
"""Bounds of the measured memory, relative to the prediction: from nine models in BLOOM's sweep
(`python -m benchmarks.planner.score --left-out`)."""


class DeepSpeed(EngineKind):
    """The optimizer keeps fp32 weights, two moments and an fp32 gradient of its part; with bf16,
    gradients are also summed in fp32."""

    title: ClassVar[str] = "DeepSpeed"
    choices: ClassVar[LayoutChoices] = LayoutChoices(
        recompute=("none", "block"), shards="none", optimizer_shards=True
    )
    score: ClassVar[str] = "BLOOM's sweep on 384 A100, vTrain"
    zero: ClassVar[dict[str, object]] = {"stage": 1}
    """The settings of `zero_optimization`."""

    @property
    def savings(self) -> tuple[EngineKind, ...]:
        """ZeRO-2, ZeRO-3, and ZeRO-3 with the optimizer on the host: without stages, as DeepSpeed
        has them."""
        return ZeroTwo(), ZeroThree(), ZeroThreeOffload()

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
            memory_low=MEMORY_LOW,
            memory_high=MEMORY_HIGH,
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
            f"--zero-stage {self.zero['stage']}",
        ]
        if chosen.recompute == "block":
            flags += ["--checkpoint-activations", "--deepspeed-activation-checkpointing"]
        file = {
            "train_micro_batch_size_per_gpu": micro_batch,
            "train_batch_size": chosen.batch,
            "zero_optimization": self.zero,
            chosen.precision: {"enabled": True},
        }
        return "\n".join([*flags, "", "ds_config.json:", json.dumps(file, indent=2)])


class ZeroTwo(DeepSpeed):
    """Replicas divide gradients, too."""

    choices: ClassVar[LayoutChoices] = LayoutChoices(
        recompute=("none", "block"), pipeline=False, shards="none", optimizer_shards=True
    )
    zero: ClassVar[dict[str, object]] = {"stage": 2}
    remark: ClassVar[str | None] = "nothing fits with ZeRO-1: planned with ZeRO-2"

    def engine(
        self,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        sync: SyncSettings | None = None,
    ) -> Engine:
        """Return the properties of ZeRO-1 with divided gradients."""
        usual = super().engine(profile, cluster, precision, sync)
        return usual.model_copy(update={"divides_gradients": True})


class ZeroThree(DeepSpeed):
    """Workers divide weights, too, and gather them while they compute."""

    choices: ClassVar[LayoutChoices] = LayoutChoices(
        recompute=("none", "block"), pipeline=False, shards="all"
    )
    zero: ClassVar[dict[str, object]] = {"stage": 3, "overlap_comm": True}
    remark: ClassVar[str | None] = "nothing fits with ZeRO-1 or ZeRO-2: planned with ZeRO-3"

    def engine(
        self,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        sync: SyncSettings | None = None,
    ) -> Engine:
        """Return the properties of shards that reduce gradients after every micro-batch."""
        usual = super().engine(profile, cluster, precision, sync)
        return usual.model_copy(
            update={
                "overlap_data": True,
                "reduce_always": True,
                "gradient_bytes": 2,
                "second_gradient_bytes": 0,
                "sharded_gradient_bytes": 2,
            }
        )


class ZeroThreeOffload(ZeroThree):
    """ZeRO-3 with the optimizer on the host."""

    zero: ClassVar[dict[str, object]] = ZeroThree.zero | {
        "offload_optimizer": {"device": "cpu", "pin_memory": True}
    }
    remark: ClassVar[str | None] = (
        "nothing fits with the optimizer on the devices: planned with ZeRO-3 and the optimizer on"
        " the hosts, which need 16 bytes of memory for every parameter that their devices update;"
        " its time is a rough figure"
    )

    def engine(
        self,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        sync: SyncSettings | None = None,
    ) -> Engine:
        """Return the properties of ZeRO-3 without optimizer state on the device."""
        usual = super().engine(profile, cluster, precision, sync)
        return usual.model_copy(update={"state_bytes": 0, "host_optimizer": True})


ENGINE = DeepSpeed()
