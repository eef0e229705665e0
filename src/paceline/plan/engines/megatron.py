"""Megatron-LM (Megatron Core), with its distributed optimizer."""

from typing import ClassVar

from paceline.plan.cost.engine import Engine
from paceline.plan.cost.engine_kind import Chosen, EngineKind, LayoutChoices
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.sync import SyncSettings

CONTEXT_BYTES = 1_500_000_000
"""Memory of the driver, the communication library and the allocator: assumed."""
MEMORY_LOW, MEMORY_HIGH = 0.84, 1.2
"""Bounds of the measured memory, relative to the prediction: from 12 models in Megatron's CI and
SimuMax's table (`python -m benchmarks.planner.score --left-out`)."""
FP8_WEIGHT_BYTES = 2
"""Transformer Engine keeps every weight in 8 bits and its transpose beside the 16 bits."""


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
        context=True,
        experts=True,
        fp8=True,
    )
    score: ClassVar[str] = "Megatron-Bridge, Megatron-Core H100, SC21, MLPerf GPT-3"
    state_bytes: ClassVar[int] = 12
    host_optimizer: ClassVar[bool] = False
    optimizer_flags: ClassVar[tuple[str, ...]] = ()

    @property
    def savings(self) -> tuple[EngineKind, ...]:
        """Moments in 16 bits, then the whole optimizer on the host."""
        return NarrowStates(), HostOptimizer()

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
            weight_bytes=2 + (FP8_WEIGHT_BYTES if precision == "fp8" else 0),
            gathered_bytes=2,
            gradient_bytes=2 if precision == "fp16" else 4,
            state_bytes=self.state_bytes,
            host_optimizer=self.host_optimizer,
            base_bytes=CONTEXT_BYTES,
            memory_low=MEMORY_LOW,
            memory_high=MEMORY_HIGH,
        )

    def settings(self, chosen: Chosen) -> str:
        """Return the flags of pretrain_gpt.py."""
        tensor, pipeline = chosen.number("tensor"), chosen.number("pipeline")
        chunks, context = chosen.number("chunks"), chosen.number("context")
        low = chosen.precision == "fp8"
        flags = [
            f"--tensor-model-parallel-size {tensor}",
            f"--pipeline-model-parallel-size {pipeline}",
            f"--micro-batch-size {chosen.number('micro_batch')}",
            f"--global-batch-size {chosen.batch}",
            *(["--bf16", "--fp8-format hybrid"] if low else [f"--{chosen.precision}"]),
            "--use-distributed-optimizer",
            "--overlap-grad-reduce",
            "--overlap-param-gather",
            *self.optimizer_flags,
        ]
        if chunks > 1:
            blocks = chosen.profile.block.count // (pipeline * chunks)
            flags.append(f"--num-layers-per-virtual-pipeline-stage {blocks}")
        if context > 1:
            flags += [f"--context-parallel-size {context}", "--cp-comm-type p2p"]
        if chosen.profile.block.parameters_experts:
            flags += _of_experts(chosen.number("expert"), tensor)
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


def _of_experts(degree: int, tensor: int) -> list[str]:
    """Return the flags of a mixture of experts: whole experts, divided among workers, or slices."""
    return [
        f"--expert-model-parallel-size {degree}",
        f"--expert-tensor-parallel-size {1 if degree > 1 else tensor}",
        "--moe-token-dispatcher-type alltoall",
        "--moe-grouped-gemm",
    ]


class NarrowStates(Megatron):
    """Adam's two moments in 16 bits."""

    state_bytes: ClassVar[int] = 8
    optimizer_flags: ClassVar[tuple[str, ...]] = (
        "--use-precision-aware-optimizer",
        "--exp-avg-dtype bf16",
        "--exp-avg-sq-dtype bf16",
    )
    remark: ClassVar[str | None] = (
        "nothing fits with Adam's moments in fp32: planned with both in bf16, whose effect on"
        " learning the planner does not know"
    )


class HostOptimizer(Megatron):
    """The optimizer and its state on the host."""

    state_bytes: ClassVar[int] = 0
    host_optimizer: ClassVar[bool] = True
    optimizer_flags: ClassVar[tuple[str, ...]] = (
        "--optimizer-cpu-offload",
        "--optimizer-offload-fraction 1.0",
        "--use-precision-aware-optimizer",
    )
    remark: ClassVar[str | None] = (
        "nothing fits with the optimizer on the devices: planned on the hosts, which need 16 bytes"
        " of memory for every parameter that their devices update; its time is a rough figure"
    )


ENGINE = Megatron()
