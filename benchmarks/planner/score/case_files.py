"""Case files: any measured sweep as a CSV for `--cases`; README.md says what blanks mean."""

from dataclasses import replace
from pathlib import Path

from benchmarks.planner.score.cases import GIB, Case, key_of, known_engine, rows_of, steps_of
from paceline.cluster.catalog import device
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.memory import memory
from paceline.profile.families import Decoder, Experts
from paceline.specs import PacelineError

HEADER = (
    "device,gpus,gpus_per_node,inter_node_gbps_per_gpu,hidden,heads,layers,vocab,seq,global_batch,"
    "micro_batch,tp,pp,dp,zero,recompute,precision,step_s,mem_gb,oom,group"
)
OPTIONAL = "kv_heads,ffn,gated,tied,sp,cp,ep,engine,optimizer,experts,active,expert_ffn,shared,head"
"""Columns that a file may have beside those."""
MEASURED = {"step_s", "mem_gb", "oom"}
NETWORK_GBPS = {"v100": 12.5, "a100": 200.0}
"""Of one device where a row does not say; 400 for all later ones."""
YES = ("1", "true", "yes")
STATE_BYTES = {"adam": 8, "adamw": 8, "lion": 4, "momentum": 4, "sgd": 0, "adafactor": 0}
"""Optimizer state of a parameter, without a copy of its weight."""


def read_cases(path: Path) -> tuple[list[Case], int]:
    """The rows of a case file that the model has terms for, and the number of the others: those
    that divide experts but do not say how many there are."""
    rows = rows_of(path)
    if not rows or (missing := set(HEADER.split(",")) - rows[0].keys()):
        raise PacelineError(
            f"{path} has no rows" if not rows else f"{path} lacks {', '.join(sorted(missing))}",
            fix=f"write a CSV with the columns {HEADER}; it may also have {OPTIONAL}",
        )
    known = [row for row in rows if _number(row, "ep", 1) == 1 or _number(row, "experts", 0)]
    cases = [_case(row) if row["recompute"] else _with_room(_case(row)) for row in known]
    return cases, len(rows) - len(known)


def _with_room(case: Case) -> Case:
    """With the least recomputation that lets it fit, for rows that do not say."""
    for mode in ("none", "attention", "block"):
        tried = replace(case, recompute=mode)
        steps = steps_of([tried])
        held = memory(steps.profile, steps.layouts, steps.batch, steps.engine).total[0]
        if held <= steps.cluster.device.memory_bytes:
            return tried
    return tried


def _case(row: dict[str, str]) -> Case:
    name = _device(row["device"])
    kind = name.split("-")[0]
    old = kind in ("v100", "a100")
    tensor, pipeline = _number(row, "tp", 1), _number(row, "pp", 1)
    gpus = int(row["gpus"])
    context = _number(row, "cp", 1)
    data = context * _number(row, "dp", gpus // (tensor * pipeline * context))
    zero = _number(row, "zero", 0)
    precision = _precision(row["precision"])
    gigabytes = row["mem_gb"]
    divided = zero == 3
    return Case(
        key=key_of(row, MEASURED),
        device=name,
        gpus=gpus,
        gpus_per_node=_number(row, "gpus_per_node", 8),
        network_gbps=float(row["inter_node_gbps_per_gpu"] or NETWORK_GBPS.get(kind, 400.0)),
        shape=_shape(row, old),
        batch=int(row["global_batch"]),
        micro_batch=_number(row, "micro_batch", 1),
        tensor=tensor,
        pipeline=pipeline,
        shards=data if divided else 1,
        replicas=1 if divided else data,
        context=context,
        expert=_number(row, "ep", 1),
        optimizer_shards=zero in (1, 2),
        recompute=_recompute(row["recompute"]),
        sequence=_said(row, "sp", default=False) and tensor > 1,
        precision=precision,
        engine=_engine(row, precision, old, zero),
        step_seconds=float(row["step_s"]) if row["step_s"] else None,
        memory_bytes=float(gigabytes) * GIB if gigabytes else None,
        out_of_memory=row["oom"].lower() in YES,
        group=row["group"] or None,
    )


def _shape(row: dict[str, str], old: bool) -> Decoder:
    dense = _dense(row, old)
    if not _number(row, "experts", 0):
        return dense
    more = {name: _number(row, name, 0) or None for name in ("expert_ffn", "head")}
    return Experts(
        **dense.model_dump() | more,
        experts=_number(row, "experts", 1),
        active=_number(row, "active", 1),
        shared=_number(row, "shared", 0),
    )


def _dense(row: dict[str, str], old: bool) -> Decoder:
    return Decoder(
        head=_number(row, "head", 0) or None,
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        kv_heads=_number(row, "kv_heads", int(row["heads"])),
        ffn=_number(row, "ffn", 4 * int(row["hidden"])),
        gated=_said(row, "gated", default=False),
        tied=_said(row, "tied", default=True),
        positions=not _said(row, "gated", default=False),
        seq=_number(row, "seq", 2048),
        vocab=_number(row, "vocab", 51200),
        attention="whole" if old else "fused",
        dropout=old,
    )


def _engine(row: dict[str, str], precision: str, old: bool, zero: int) -> Engine:
    """The row's engine; where it does not say, DeepSpeed if V100 or A100 have a ZeRO stage, else
    Megatron, without overlap on those."""
    name = (row.get("engine") or "").lower() or ("deepspeed" if old and zero else "megatron")
    found = known_engine(name, precision, zero)
    if not row.get("engine"):
        found = found.model_copy(
            update={
                "overlap_data": not old or zero == 3,
                "overlap_tensor": "no",
                "overlap_transfer": False,
            }
        )
    word = (row.get("optimizer") or "adam").lower()
    if word not in STATE_BYTES:
        raise PacelineError(f"no such optimizer: {word}", fix=f"write {', '.join(STATE_BYTES)}")
    state = found.state_bytes - STATE_BYTES["adam"] + STATE_BYTES[word]
    return found.model_copy(update={"state_bytes": state})


def _number(row: dict[str, str], name: str, default: int) -> int:
    return int(float(row.get(name) or default))


def _said(row: dict[str, str], name: str, *, default: bool) -> bool:
    written = row.get(name) or ""
    return written.lower() in YES if written else default


def _device(written: str) -> str:
    name = written.lower().replace("_", "-").replace(" ", "-")
    if name in ("a100", "h100"):
        return f"{name}-80gb"
    if name == "v100":
        return "v100-32gb"
    return device(name).name


def _recompute(written: str) -> str:
    word = written.lower()
    if word in ("full", "block", *YES):
        return "block"
    return "attention" if word == "selective" else "none"


def _precision(written: str) -> str:
    word = written.lower() or "bf16"
    for name in ("fp8", "fp4", "fp16", "bf16", "fp32"):
        if name in word:
            return name
    raise PacelineError(f"no such precision: {written}", fix="write fp32, fp16, bf16, fp8 or fp4")
