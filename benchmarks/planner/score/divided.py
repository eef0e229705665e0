"""Published tables with context parallelism or experts as cases; what they do not say is
assumed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.planner.score.cases import MEGATRON_CORE, Case, key_of, rows_of
from benchmarks.planner.score.scale_out import golden_case, golden_usable
from benchmarks.planner.score.tables import (
    bridge_case,
    bridge_llama,
    simumax_case,
    simumax_llama,
    torchtitan_all,
)
from paceline.profile.families import Decoder, Experts
from paceline.profile.named_models import parse_model

BRIDGE = {
    "DeepSeekV3": "deepseek-v3",
    "GPT OSS 120B": "gpt-oss-120b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "Kimi_K2": "deepseek-v3: heads=64 experts=384 dense=1 vocab=163840",
}
"""Kimi K2: from its released config.json, recalled."""
SIMUMAX = {
    "deepseekv2": "deepseek-v3: width=5120 ffn=12288 vocab=102400 experts=160 active=6"
    " expert_ffn=1536 shared=2 dense=1",
    "deepseekv3": "deepseek-v3: dense=1",
}
"""SimuMax's configs/models; one of four layers without experts is assumed."""
LLAMA_405B = Decoder(
    layers=126,
    hidden=16384,
    heads=128,
    kv_heads=8,
    ffn=53248,
    seq=8192,
    vocab=128256,
    gated=True,
    tied=False,
    positions=False,
)
MLPERF = {"GB200": "gb200", "H200": "h200", "H100": "h100-80gb"}


def bridge_context(data: Path) -> list[Case]:
    """Llama 405B under Megatron-Bridge with context parallelism; as its other rows."""
    return [case for case in bridge_llama(data) if case.context > 1]


def bridge_experts(data: Path) -> list[Case]:
    """Mixtures of experts under Megatron-Bridge where the precision is said, without those that
    also have state space layers; whole experts on a device, tokens to them not overlapped
    (assumed); the layer that predicts a second token is not counted."""
    cases = []
    for row in rows_of(data / "nvidia_megatron_bridge_perf.csv"):
        model = BRIDGE.get(row["model"].partition(" (")[0])
        if model is None or not row["precision"]:
            continue
        case = bridge_case(row, _shape(model, {"seq": int(row["seq"])}))
        cases.append(_balanced(case))
    return cases


def simumax_context(data: Path) -> list[Case]:
    """Llama of 32,768 and 131,072 tokens on 8 B200; as SimuMax's other rows."""
    dims = {row["model"]: row for row in rows_of(data / "model_dims.csv")}
    return [
        simumax_case(row, simumax_llama(row, dims))
        for row in rows_of(data / "simumax_b200.csv")
        if row["cp"] != "1"
    ]


def simumax_experts(data: Path) -> list[Case]:
    """DeepSeek with four layers on 8 B200; as SimuMax's other rows."""
    return [
        _balanced(
            simumax_case(
                row,
                _shape(
                    SIMUMAX[row["model"]], {"layers": int(row["layers"]), "seq": int(row["seq"])}
                ),
            )
        )
        for row in rows_of(data / "simumax_b200.csv")
        if row["model"] in SIMUMAX
    ]


def torchtitan_context(data: Path) -> list[Case]:
    """Llama 8B and 405B of 65,536 to 262,144 tokens under torchtitan; as its other rows."""
    return [case for case in torchtitan_all(data) if case.context > 1]


def mlperf_context(data: Path) -> list[Case]:
    """Llama 405B in FP8 on 512-8192 H100, H200 and GB200; as the rows of GPT-3."""
    measured = {"ttt_min", "steps_to_target", "step_s", "step_source", "step_s_upper"}
    cases = []
    for row in rows_of(data / "mlperf_llm_layouts.csv"):
        if row["benchmark"] != "llama31_405b" or not row["tp"]:
            continue
        name = next(name for word, name in MLPERF.items() if word in row["accelerator"])
        tensor, pipeline, gpus = int(row["tp"]), int(row["pp"]), int(row["accelerators"])
        cases.append(
            Case(
                key=key_of(row, measured),
                device=name,
                gpus=gpus,
                gpus_per_node=64 if name == "gb200" else 8,
                network_gbps=400.0,
                shape=LLAMA_405B,
                batch=int(row["gbs"]),
                micro_batch=int(row["mbs"] or 1),
                tensor=tensor,
                pipeline=pipeline,
                chunks=int(row["vp"] or 8),
                replicas=gpus // (tensor * pipeline),
                context=int(row["cp"]),
                optimizer_shards=True,
                sequence=True,
                precision="fp8",
                engine=MEGATRON_CORE,
                step_seconds=float(row["step_s"] or row["step_s_upper"]),
            )
        )
    return cases


def golden_divided(data: Path) -> list[Case]:
    """GPT of Megatron's CI with context parallelism or experts, as its dense rows. Where no expert
    tensor parallelism is said, it is that of slices; experts of `moe_ffn`, without capacity."""
    cases = []
    for row in rows_of(data / "megatron_functional_golden.csv"):
        mixture = bool(row["experts"])
        if not (golden_usable(row) and (mixture or row["cp"] not in ("", "1"))):
            continue
        case = golden_case(row)
        if case.replicas < case.context:  # says fewer devices than its layout needs
            continue
        if mixture:
            degree = int(row["ep"] or 1)
            shape = Experts(
                **case.shape.model_dump(),
                experts=int(row["experts"]),
                active=int(row["topk"] or 1),
                expert_ffn=int(row["moe_ffn"]) if row["moe_ffn"] else None,
            )
            sliced = int(row["etp"] or row["tp"])
            case = replace(case, shape=shape, expert=degree * sliced if degree > 1 else 1)
        cases.append(case)
    return cases


def _shape(model: str, dimensions: dict[str, int]) -> Experts:
    _, _, shape = parse_model(model)
    assert isinstance(shape, Experts)
    return shape.model_copy(update=dimensions)


def _balanced(case: Case) -> Case:
    """Experts get equally many tokens by force (said)."""
    return replace(case, engine=case.engine.model_copy(update={"imbalance": 1.0}))


SWEEPS_DIVIDED: dict[str, Callable[[Path], list[Case]]] = {
    "Megatron-Bridge, context": bridge_context,
    "MLPerf Llama 405B, context": mlperf_context,
    "torchtitan, context": torchtitan_context,
    "SimuMax B200, context": simumax_context,
    "Megatron-Bridge, experts": bridge_experts,
    "SimuMax B200, experts": simumax_experts,
}
MEMORY_DIVIDED: dict[str, Callable[[Path], list[Case]]] = {
    "Megatron CI, experts or context": golden_divided,
    "torchtitan, context": torchtitan_context,
    "SimuMax B200, context": simumax_context,
    "SimuMax B200, experts": simumax_experts,
}
