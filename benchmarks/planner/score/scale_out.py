"""Published tables of scale and of memory as cases. What they do not say is assumed, in words."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.planner.score.cases import MEGATRON, MEGATRON_CORE, Case, key_of, rows_of
from benchmarks.planner.score.tables import bloom, simumax_dense, torchtitan
from paceline.profile.families import Decoder

GPUS = {"a100": "a100-80gb", "h100": "h100-80gb", "gb200": "gb200"}
GOLDEN_MEASURED = {"iter_s_median", "iter_s_min", "n_iter", "mem_alloc_bytes", "mem_max_bytes"}
UNSAID = ("uneven", "account_for_embedding", "frozen", "defer_embedding")
"""In a test case's name: features that the table has no column for."""


def sc21(data: Path) -> list[Case]:
    """32-3072 A100, full recomputation, fp16; 8 x 200 Gbit/s a node: all said."""
    cases = []
    for row in rows_of(data / "megatron_sc21_table1_a100.csv"):
        pipeline, layers = int(row["pp"]), int(row["layers"])
        virtual = row["layers_per_virtual_stage"]
        measured = {"tflops_per_gpu", "pct_peak", "agg_pflops", "iter_s_derived"}
        cases.append(
            Case(
                key=key_of(row, measured),
                device="a100-80gb",
                gpus=int(row["gpus"]),
                gpus_per_node=8,
                network_gbps=200.0,
                shape=_gpt(row, "whole"),
                batch=int(row["gbs"]),
                micro_batch=int(row["mbs"]),
                tensor=int(row["tp"]),
                pipeline=pipeline,
                chunks=layers // (pipeline * int(virtual)) if virtual else 1,
                replicas=int(row["dp"]),
                recompute="block",
                precision="fp16",
                engine=MEGATRON,
                step_seconds=float(row["iter_s_derived"]),
            )
        )
    return cases


def korthikanti(data: Path) -> list[Case]:
    """22B to 1T on 8-512 A100, one replica: whole recomputation, or of attention only with sequence
    parallelism. fp16 and 8 x 200 Gbit/s a node as in SC21 (assumed)."""
    cases = []
    for row in rows_of(data / "korthikanti_seqpar_table5_a100.csv"):
        selective = row["mode"].startswith("selective")
        measured = {"iter_s", "mfu_pct", "hfu_pct", "param_opt_gib", "act_gib"}
        cases.append(
            Case(
                key=key_of(row, measured),
                device="a100-80gb",
                gpus=int(row["gpus"]),
                gpus_per_node=8,
                network_gbps=200.0,
                shape=_gpt(row | {"vocab": "51200"}, "whole"),
                batch=int(row["gbs"]),
                micro_batch=int(row["mbs"]),
                tensor=int(row["tp"]),
                pipeline=int(row["pp"]),
                chunks=int(row["virtual_stages"]),
                recompute="attention" if selective else "block",
                sequence=selective,
                precision="fp16",
                engine=MEGATRON,
                step_seconds=float(row["iter_s"]),
            )
        )
    return cases


def megatron_h100(data: Path) -> list[Case]:
    """48-6144 H100, bf16, communication of DP, TP and PP overlapped (said). Megatron overlaps that
    of PP only where chunks are interleaved: one block a chunk is assumed, the only number that
    divides all rows, and micro-batches of 1. The step follows from the model FLOPs of SC21's
    formula without recomputation."""
    cases = []
    for row in rows_of(data / "megatron_core_h100.csv"):
        hidden, layers, seq = int(row["hidden"]), int(row["layers"]), int(row["seq"])
        useful = 72.0 * int(row["gbs"]) * seq * layers * hidden**2
        useful *= 1 + seq / (6 * hidden) + int(row["vocab"]) / (12 * layers * hidden)
        measured = {"tflops_per_gpu", "mfu_pct", "agg_pflops", "kind"}
        cases.append(
            Case(
                key=key_of(row, measured),
                device="h100-80gb",
                gpus=int(row["gpus"]),
                gpus_per_node=8,
                network_gbps=400.0,
                shape=_gpt(row, "fused"),
                batch=int(row["gbs"]),
                micro_batch=1,
                tensor=int(row["tp"]),
                pipeline=int(row["pp"]),
                chunks=layers // int(row["pp"]) if int(row["pp"]) > 1 else 1,
                replicas=int(row["dp"]),
                optimizer_shards=True,
                sequence=int(row["tp"]) > 1,
                engine=MEGATRON_CORE,
                step_seconds=useful / (int(row["gpus"]) * float(row["tflops_per_gpu"]) * 1e12),
            )
        )
    return cases


def mlperf_gpt3(data: Path) -> list[Case]:
    """GPT-3 on 512-11616 H100 in FP8; where the log has no throughput, time to train by steps. Four
    chunks where the configuration does not say (as the one of 512 devices does)."""
    shape = Decoder(layers=96, hidden=12288, heads=96, seq=2048, vocab=51200)
    measured = {"ttt_min", "steps_to_target", "step_s", "step_source", "step_s_upper"}
    cases = []
    for row in rows_of(data / "mlperf_llm_layouts.csv"):
        if row["benchmark"] != "gpt3" or not row["tp"] or row["org"].endswith("-power"):
            continue
        tensor, pipeline, gpus = int(row["tp"]), int(row["pp"]), int(row["accelerators"])
        cases.append(
            Case(
                key=key_of(row, measured),
                device="h100-80gb",
                gpus=gpus,
                gpus_per_node=8,
                network_gbps=400.0,
                shape=shape,
                batch=int(row["gbs"]),
                micro_batch=int(row["mbs"] or 2),
                tensor=tensor,
                pipeline=pipeline,
                chunks=int(row["vp"] or 4),
                replicas=gpus // (tensor * pipeline),
                optimizer_shards=True,
                sequence=True,
                precision="fp8",
                engine=MEGATRON_CORE,
                step_seconds=float(row["step_s"] or row["step_s_upper"]),
            )
        )
    return cases


def megatron_golden(data: Path) -> list[Case]:
    """Dense GPT of Megatron's CI without context parallelism, where the attention is said. Memory
    is that of the rank which logs, on the last stage; vocabulary of GPT-2 where none is said."""
    return [
        golden_case(row)
        for row in rows_of(data / "megatron_functional_golden.csv")
        if golden_usable(row) and not row["experts"] and row["cp"] == "1"
    ]


def golden_usable(row: dict[str, str]) -> bool:
    """Whether the row says what memory depends on."""
    said = row["attn_backend"] in ("unfused", "flash")
    usable = row["suspect_copy"] == "0" and not row["megatron_fsdp"] and row["gpu"] in GPUS
    if not (row["model"] in ("gpt", "moe") and usable and said and row["gbs"]) or row["fp8"]:
        return False
    return not any(word in row["test_case"] for word in UNSAID)


def golden_case(row: dict[str, str]) -> Case:
    whole = row["attn_backend"] == "unfused"
    tensor, pipeline, layers = int(row["tp"]), int(row["pp"]), int(row["layers"])
    gpus = int(row["nodes"] or 1) * int(row["gpus_per_node"] or 8)
    multiple = 128 * tensor
    virtual = int(row["vpp_layers"] or 0)
    return Case(
        key=key_of(row, GOLDEN_MEASURED),
        device=GPUS[row["gpu"]],
        gpus=gpus,
        gpus_per_node=int(row["gpus_per_node"] or 8),
        network_gbps=400.0,
        shape=Decoder(
            layers=layers,
            hidden=int(row["hidden"]),
            heads=int(row["heads"]),
            kv_heads=int(row["kv_groups"] or row["heads"]),
            ffn=int(row["ffn"] or 4 * int(row["hidden"])),
            seq=int(row["seq"]),
            vocab=-(-int(row["vocab"] or 50257) // multiple) * multiple,
            gated=row["swiglu"] == "True",
            tied=row["untie"] != "True",
            attention="whole" if whole else "fused",
            dropout=True,
        ),
        batch=int(row["gbs"]),
        micro_batch=int(row["mbs"]),
        tensor=tensor,
        pipeline=pipeline,
        chunks=max(layers // (pipeline * virtual), 1) if virtual else 1,
        replicas=gpus // (tensor * pipeline),
        context=int(row["cp"] or 1),
        optimizer_shards=row["dist_opt"] == "True",
        sequence=row["sp"] == "True",
        recompute="block" if row["recompute"] == "full" else "none",
        engine=MEGATRON.model_copy(update={"base_bytes": 80_000_000}),
        memory_bytes=float(row["mem_max_bytes"]) if row["mem_max_bytes"] else None,
    )


def _gpt(row: dict[str, str], attention: str) -> Decoder:
    return Decoder(
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        seq=int(row["seq"]),
        vocab=int(row["vocab"]),
        attention="whole" if attention == "whole" else "fused",
        dropout=attention == "whole",
    )


SCALE_OUT: dict[str, Callable[[Path], list[Case]]] = {
    "Megatron SC21": sc21,
    "Megatron-Core H100": megatron_h100,
    "MLPerf GPT-3": mlperf_gpt3,
}
SMALL = {"Korthikanti et al.": korthikanti}
"""Tables that are too small to be fitted by themselves."""
MEMORY: dict[str, Callable[[Path], list[Case]]] = {
    "Megatron CI, dense": megatron_golden,
    "torchtitan": torchtitan,
    "BLOOM": bloom,
    "SimuMax B200, dense": simumax_dense,
}
LAST_STAGE = {"Megatron CI, dense", "Megatron CI, experts or context"}
"""Tables whose memory is that of a device of the last stage."""
