"""Published sweeps and throughput tables as cases. What they do not say is assumed, in words."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.planner.score.case_files import read_cases
from benchmarks.planner.score.cases import (
    GIB,
    MEGATRON,
    MEGATRON_CORE,
    Case,
    key_of,
    known_engine,
    rows_of,
)
from paceline.profile.families import Decoder

TORCHTITAN = known_engine("torchtitan")
ROWWISE_CAST_BYTES = 7
"""Six casts instead of three (torchao): with so many, Llama 8B takes 12 % longer than with one
scale a matrix, as torchtitan's commit 7a04053 measured."""
FSDP = known_engine("fsdp")
MOSAIC = FSDP.model_copy(update={"sharded_gradient_bytes": 4, "stops_early": False})
MOSAIC_PURE = MOSAIC.model_copy(update={"gradient_bytes": 2})
FMS = FSDP.model_copy(update={"gradient_bytes": 2, "compiled": True})
LLAMA2_34B = {"layers": "48", "ffn": "22016"}
"""Beside the 70B's other dimensions (Llama 2 paper and Code Llama, recalled)."""


def vtrain_multi(data: Path) -> list[Case]:
    """64-512 A100. Megatron-DeepSpeed, whole attention, block recomputation, gradients in 16 bits
    and not overlapped; 800 Gbit/s per node: all said by the table's head."""
    rows = rows_of(data / "vtrain_ground_truth_multi.csv")
    return [_vtrain(row, f"{row['params_b']}B on {row['gpus']}") for row in rows]


def vtrain_single(data: Path) -> list[Case]:
    """2-8 A100 of one node; as above."""
    rows = rows_of(data / "vtrain_ground_truth_single.csv")
    same = ("gpus", "global_batch", "hidden", "layers")
    return [_vtrain(row, " ".join(row[name] for name in same)) for row in rows]


def _vtrain(row: dict[str, str], group: str) -> Case:
    return Case(
        key=key_of(row, {"iter_ms"}),
        device="a100-80gb",
        gpus=int(row["gpus"]),
        gpus_per_node=8,
        network_gbps=100.0,
        shape=Decoder(
            layers=int(row["layers"]),
            hidden=int(row["hidden"]),
            heads=int(row["heads"]),
            seq=int(row["seq"]),
            vocab=50257,
            attention="whole",
            dropout=True,
        ),
        batch=int(row["global_batch"]),
        micro_batch=int(row["micro_batch"]),
        tensor=int(row["tp"]),
        pipeline=int(row["pp"]),
        replicas=int(row["dp"]),
        recompute="block",
        precision="fp16",
        engine=MEGATRON.model_copy(update={"gradient_bytes": 2}),
        step_seconds=float(row["iter_ms"]) / 1e3,
        group=group,
    )


def mosaic(data: Path) -> list[Case]:
    """MPT under FSDP with FlashAttention. Networks: 1600 Gbit/s a node for A100 (said), 3200 for
    H100 (assumed)."""
    dims = {row["model"]: row for row in rows_of(data / "model_dims.csv")}
    measured = {"mfu_pct", "hfu_pct", "model_tflops_per_gpu", "seq_per_s", "tok_per_s", "step_s"}
    cases = []
    for row in rows_of(data / "mosaic_llm_foundry_mpt.csv"):
        name = row["gpu"].replace("_", "-")
        cases.append(
            Case(
                key=key_of(row, measured | {"tok_per_s_per_gpu"}),
                device=name,
                gpus=int(row["gpus"]),
                gpus_per_node=8,
                network_gbps=200.0 if name.startswith("a100") else 400.0,
                shape=_shape(dims[f"mpt-{row['model']}"], int(row["seq"])),
                batch=int(row["global_batch"]),
                micro_batch=int(row["micro_batch"]),
                shards=int(row["gpus"]),
                recompute="block" if row["act_ckpt"] == "True" else "none",
                precision="fp8" if "fp8" in row["precision"] else "bf16",
                engine=MOSAIC_PURE if row["mp_mode"] == "PURE" else MOSAIC,
                reshard=row["sharding"] == "FULL_SHARD",
                step_seconds=float(row["step_s"]),
            )
        )
    return cases


def fms(data: Path) -> list[Case]:
    """Llama 2 under FSDP1, compiled, weights and gradients in bf16; "selective" recomputes some
    blocks, taken as the operations between products of all."""
    dims = {row["model"]: row for row in rows_of(data / "model_dims.csv")}
    dims["llama2-34b"] = dims["llama2-70b"] | LLAMA2_34B
    cases = []
    for row in rows_of(data / "ibm_fms_fsdp.csv"):
        gpus, seq, local = int(row["gpus"]), int(row["seq"]), int(row["local_bs"])
        shards = 8 if row["sharding"] == "HSDP" else gpus
        cases.append(
            Case(
                key=key_of(row, {"tok_per_s_per_gpu", "mfu", "hfu"}),
                device=row["gpu"].replace("_", "-"),
                gpus=gpus,
                gpus_per_node=8,
                network_gbps=float(row["network"].split()[0]) / 8,
                shape=_shape(dims[row["model"]], seq),
                batch=local * gpus,
                micro_batch=local,
                shards=shards,
                replicas=gpus // shards,
                recompute=row["act_ckpt"],
                engine=FMS,
                step_seconds=local * seq / float(row["tok_per_s_per_gpu"]),
            )
        )
    return cases


def simumax_dense(data: Path) -> list[Case]:
    """Llama with few layers on 8 B200 under Megatron, nothing overlapped (said); allocated memory.
    Rows of experts and of context parallelism are tables of their own."""
    rows = rows_of(data / "simumax_b200.csv")
    dims = {row["model"]: row for row in rows_of(data / "model_dims.csv")}
    return [
        simumax_case(row, simumax_llama(row, dims))
        for row in rows
        if row["model"].startswith("llama3") and row["cp"] == "1"
    ]


def simumax_llama(row: dict[str, str], dims: dict[str, dict[str, str]]) -> Decoder:
    size = row["model"].removeprefix("llama3_")
    return _shape(dims[f"llama3.1-{size}"] | {"layers": row["layers"]}, int(row["seq"]))


def simumax_case(row: dict[str, str], shape: Decoder) -> Case:
    tensor, replicas, context = int(row["tp"]), int(row["dp"]), int(row["cp"])
    batch = replicas * int(row["mbc"])
    return Case(
        key=key_of(row, {"real_ms", "perf_ms", "real_alloc_gib", "perf_alloc_gib"}),
        device="b200",
        gpus=8,
        gpus_per_node=8,
        network_gbps=400.0,
        shape=shape,
        batch=batch,
        micro_batch=1,
        tensor=tensor,
        pipeline=int(row["pp"]),
        replicas=replicas * context,
        context=context,
        expert=int(row["ep"]),
        optimizer_shards=True,
        sequence=tensor > 1,
        engine=MEGATRON,
        step_seconds=float(row["real_ms"]) / 1e3,
        memory_bytes=float(row["real_alloc_gib"]) * GIB,
        group=f"{row['model']} batch {batch}",
    )


def bloom(data: Path) -> list[Case]:
    """8-416 A100 under Megatron-DeepSpeed; a case file."""
    return read_cases(data / "bloom_jeanzay_cases.csv")[0]


def bridge_dense(data: Path) -> list[Case]:
    """Llama pre-training under Megatron-Bridge, where the precision is said. No recomputation,
    sequence parallelism with tensor (assumed); an NVL72 rack counts as one node of 64. Rows with
    context parallelism and of experts are tables of their own."""
    return [case for case in bridge_llama(data) if case.context == 1]


def bridge_llama(data: Path) -> list[Case]:
    dims = {row["model"]: row for row in rows_of(data / "model_dims.csv")}
    names = {"LLAMA3_8B": "8b", "LLAMA3_70B": "70b", "LLAMA3.1_405B": "405b"}
    return [
        bridge_case(row, _shape(dims[f"llama3.1-{names[row['model']]}"], int(row["seq"])))
        for row in rows_of(data / "nvidia_megatron_bridge_perf.csv")
        if row["model"] in names and row["task"].startswith("Pre-Training") and row["precision"]
    ]


def bridge_case(row: dict[str, str], shape: Decoder) -> Case:
    system = row["system"].removeprefix("DGX-").lower()
    written = row["precision"].lower()
    precision = "fp4" if "fp4" in written else "fp8" if "fp8" in written else "bf16"
    gpus, tensor, pipeline = int(row["gpus"]), int(row["tp"]), int(row["pp"])
    sharded = row["fsdp"] not in ("", "0", "n/a")
    workers = gpus // (tensor * pipeline)
    return Case(
        key=key_of(row, {"tok_per_s_per_gpu", "model_tflops_per_gpu", "step_s"}),
        device="h100-80gb" if system == "h100" else system,
        gpus=gpus,
        gpus_per_node=64 if system.startswith("gb") else 8,
        network_gbps=800.0 if system in ("gb300", "b300") else 400.0,
        shape=shape,
        batch=int(row["gbs"]),
        micro_batch=int(row["mbs"]),
        tensor=tensor,
        pipeline=pipeline,
        chunks=int(row["vp"]) if row["vp"] not in ("", "n/a") and pipeline > 1 else 1,
        shards=workers if sharded else 1,
        replicas=1 if sharded else workers,
        context=_degree(row["cp"]),
        expert=_degree(row["ep"]),
        optimizer_shards=not sharded,
        sequence=tensor > 1,
        precision=precision,
        engine=MEGATRON_CORE,
        step_seconds=float(row["step_s"]),
    )


def _degree(written: str) -> int:
    return int(written) if written.isdecimal() else 1


def torchtitan(data: Path) -> list[Case]:
    """Llama under FSDP2, without context parallelism (a table of its own); 400 Gbit/s (said).
    Selective recomputation keeps every second product, whole blocks are computed again without
    their last one (torchtitan's and torch's code); asynchronous slices gain in forward only (29 %
    of it and 8 % of a step, discuss.pytorch.org 209487)."""
    return [case for case in torchtitan_all(data) if case.context == 1]


def torchtitan_all(data: Path) -> list[Case]:
    dims = {row["model"]: row for row in rows_of(data / "model_dims.csv")}
    cases = []
    for row in rows_of(data / "torchtitan_h100_h200.csv"):
        gpus, seq, batch = int(row["gpus"]), int(row["seq"]), int(row["gbs"])
        technique = row["technique"]
        pipeline = int(row["pp"])
        asynchronous = "asyncTP" in technique
        cases.append(
            Case(
                key=key_of(row, {"tok_per_s_per_gpu", "mem_gib"}),
                device="h200" if row["gpu"] == "h200" else "h100-96gb-500w",
                gpus=gpus,
                gpus_per_node=8,
                network_gbps=400.0,
                shape=_shape(dims[row["model"]], seq),
                batch=batch,
                micro_batch=1 if pipeline > 1 else int(row["local_bs"]),
                tensor=int(row["tp"]),
                pipeline=pipeline,
                chunks=2 if "Interleaved" in technique else 1,
                shards=int(row["fsdp"]) * int(row["cp"]),
                context=int(row["cp"]),
                recompute="block" if row["act_ckpt"] == "full" else "selective",
                sequence=True,
                precision="fp8" if "float8" in technique else "bf16",
                engine=TORCHTITAN.model_copy(
                    update={
                        "overlap_tensor": "forward" if asynchronous else "no",
                        "compiled": "compile" in technique,
                        "cast_bytes": ROWWISE_CAST_BYTES if "rowwise" in technique else 3,
                        "gathered_bytes": 1 if "float8 all-gather" in technique else 2,
                    }
                ),
                step_seconds=batch * seq / (float(row["tok_per_s_per_gpu"]) * gpus),
                memory_bytes=float(row["mem_gib"]) * GIB if row["mem_gib"] else None,
            )
        )
    return cases


def _shape(row: dict[str, str], seq: int) -> Decoder:
    return Decoder(
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        kv_heads=int(row["kv_heads"]),
        ffn=int(row["ffn"]),
        seq=seq,
        vocab=int(row["vocab"]),
        gated=row["gated_mlp"] == "1",
        tied=row["tied_embeddings"] == "1",
        positions=row["gated_mlp"] == "0",
    )


SWEEPS: dict[str, Callable[[Path], list[Case]]] = {
    "vTrain multi-node": vtrain_multi,
    "vTrain single-node": vtrain_single,
    "MosaicML": mosaic,
    "Megatron-Bridge dense": bridge_dense,
    "torchtitan": torchtitan,
    "BLOOM": bloom,
    "SimuMax B200, dense": simumax_dense,
    "FMS": fms,
}
