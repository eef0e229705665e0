"""torchtitan: FSDP2 with tensor and pipeline parallelism, compiled."""

from typing import ClassVar

from paceline.plan.cost.engine import Engine
from paceline.plan.cost.engine_kind import Chosen, EngineKind, LayoutChoices
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.sync import SyncSettings

RESERVED = 0.15
"""Activations that the allocator holds beyond those in use: torchtitan's table has reserved
memory; from four of its rows."""
MEMORY_LOW, MEMORY_HIGH = 0.83, 1.22
"""Bounds of the measured memory, relative to the prediction: from four models in torchtitan's
table, and the spread that other engines have (`python -m benchmarks.planner.score --left-out`)."""


class Torchtitan(EngineKind):
    """Selective recomputation keeps every second product; shards of a pipeline gather their
    weights once per step."""

    title: ClassVar[str] = "torchtitan"
    choices: ClassVar[LayoutChoices] = LayoutChoices(
        recompute=("none", "selective", "block"),
        chunks=(1, 2),
        sequence="always",
        context=True,
        experts=True,
        fp8=True,
    )
    score: ClassVar[str] = "torchtitan's published table, 8 to 512 H100"

    def engine(
        self,
        profile: Profile,
        cluster: Cluster,
        precision: str,
        sync: SyncSettings | None = None,
    ) -> Engine:
        """Return the properties of a compiled run."""
        del profile, cluster, sync
        return Engine(
            gathered_bytes=1 if precision == "fp8" else 2,
            gather_once=True,
            keeps_every_second=True,
            stops_early=True,
            compiled=True,
            overlap_context=False,
            reserved=RESERVED,
            memory_low=MEMORY_LOW,
            memory_high=MEMORY_HIGH,
        )

    def settings(self, chosen: Chosen) -> str:
        """Return the parts of a job's TOML file that the layout decides."""
        context = chosen.number("context")
        replicas, shards = chosen.number("replicas"), chosen.number("shards") // context
        micro_batch = chosen.number("micro_batch")
        local = chosen.batch // (replicas * shards)
        pipeline = chosen.number("pipeline")
        mode = {"block": "full"}.get(chosen.recompute, chosen.recompute)
        lines = [
            "[training]",
            f"local_batch_size = {local if pipeline > 1 else micro_batch}",
            f"global_batch_size = {chosen.batch}",
            'mixed_precision_param = "bfloat16"',
            "",
            "[parallelism]",
            f"data_parallel_replicate_degree = {replicas}",
            f"data_parallel_shard_degree = {shards}",
            f"tensor_parallel_degree = {chosen.number('tensor')}",
            f"pipeline_parallel_degree = {pipeline}",
        ]
        if context > 1:
            lines.append(f"context_parallel_degree = {context}")
        if (expert := chosen.number("expert")) > 1:
            lines += [f"expert_parallel_degree = {expert}", "expert_tensor_parallel_degree = 1"]
        if pipeline > 1:
            schedule = "Interleaved1F1B" if chosen.number("chunks") > 1 else "1F1B"
            lines += [
                f'pipeline_parallel_schedule = "{schedule}"',
                f"pipeline_parallel_microbatch_size = {micro_batch}",
            ]
        lines += ["", "[activation_checkpoint]", f'mode = "{mode}"']
        if mode == "selective":
            lines.append('selective_ac_option = "op"')
        if chosen.precision == "fp8":
            lines += ["", "[model]", 'converters = ["float8"]']
            lines += ["", "[float8]", "enable_fsdp_float8_all_gather = true"]
        return "\n".join([*lines, "", "[compile]", "enable = true"])


ENGINE = Torchtitan()
