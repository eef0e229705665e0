"""Public trainings beside the planner's predictions, the table of docs/public-runs.md.

Predictions are the catalog's, with the layouts that were published. Nothing is run here.
Without `--write` the table is printed; with it, it replaces that on the page.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.common.output import argument_parser
from benchmarks.planner.pages.worked_plans import put_out, table_of
from benchmarks.planner.score.cases import DATA, MEGATRON, MEGATRON_CORE, Case
from benchmarks.planner.score.divided import LLAMA_405B
from benchmarks.planner.score.scale_out import korthikanti, megatron_h100, mlperf_gpt3, sc21
from benchmarks.planner.score.scoring import Prediction, predict
from benchmarks.planner.score.tables import bloom, fms, torchtitan
from paceline.plan.calibration.calibrate import from_priors
from paceline.profile.families import Decoder, decoder

PAGE = Path(__file__).parents[3] / "docs" / "public-runs.md"
MT_NLG = Decoder(
    layers=105, hidden=20480, heads=128, seq=2048, vocab=51200, attention="whole", dropout=True
)


@dataclass(frozen=True)
class PublicRun:
    """A training that its makers measured."""

    name: str
    case: Case


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="published tables: %(default)s")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    options = parser.parse_args()
    runs = public_runs(options.data)
    put_out({"all": table(runs)}, PAGE, "public runs", write=options.write)


def public_runs(data: Path) -> list[PublicRun]:
    """All of them, the oldest software first."""
    return [
        *(PublicRun(f"GPT {_billions(each)}, SC21", each) for each in sc21(data)),
        *_some("GPT", "Korthikanti", korthikanti(data), lambda each: each.sequence),
        *mt_nlg(),
        *_some(
            "BLOOM 176B",
            "Jean Zay",
            bloom(data),
            lambda each: (
                each.shape.layers == 70
                and each.shape.heads == 112
                and each.tensor == 4
                and each.precision == "bf16"
            ),
        ),
        *_some("GPT", "Megatron-Core", megatron_h100(data), lambda each: each.gpus in (768, 6144)),
        *_some("GPT-3 175B", "MLPerf", mlperf_gpt3(data), lambda each: each.gpus in (768, 11616)),
        *_some("Llama 2", "FMS", fms(data), lambda each: each.shape.hidden == 8192),
        *_some(
            "Llama 3.1",
            "torchtitan",
            torchtitan(data),
            lambda each: each.gpus in (8, 512) and each.precision == "fp8" and each.chunks == 1,
        ),
        *llama3_405b(),
    ]


def _some(
    name: str, where: str, cases: Sequence[Case], wanted: Callable[[Case], bool]
) -> list[PublicRun]:
    sized = name[-1] == "B"
    return [
        PublicRun(f"{name if sized else f'{name} {_billions(each)}'}, {where}", each)
        for each in cases
        if wanted(each)
    ]


def mt_nlg() -> list[PublicRun]:
    """Megatron-Turing NLG 530B on Selene (arXiv:2201.11990): 8 slices, 35 stages."""
    measured = {280: 60.1, 350: 50.2, 420: 44.4}
    case = Case(
        key="",
        device="a100-80gb",
        gpus=2240,
        gpus_per_node=8,
        network_gbps=200.0,
        shape=MT_NLG,
        batch=1920,
        micro_batch=1,
        tensor=8,
        pipeline=35,
        recompute="block",
        engine=MEGATRON,
    )
    return [
        PublicRun(
            "MT-NLG 530B",
            replace(case, gpus=8 * nodes, replicas=nodes // 35, step_seconds=seconds),
        )
        for nodes, seconds in measured.items()
    ]


def llama3_405b() -> list[PublicRun]:
    """Llama 3 405B (arXiv:2407.21783, table 4): 8 slices, 16 stages; one block in a chunk and
    micro-batches of one are assumed."""
    useful = decoder(LLAMA_405B).flops * 2048
    return [
        PublicRun(
            "Llama 3 405B, Meta",
            Case(
                key="",
                device="h100-80gb",
                gpus=gpus,
                gpus_per_node=8,
                network_gbps=400.0,
                shape=LLAMA_405B,
                batch=2048,
                micro_batch=1,
                tensor=8,
                pipeline=16,
                chunks=8,
                replicas=gpus // 128,
                optimizer_shards=True,
                sequence=True,
                engine=MEGATRON_CORE,
                step_seconds=useful / (gpus * teraflops * 1e12),
            ),
        )
        for gpus, teraflops in ((8192, 430.0), (16384, 400.0))
    ]


def table(runs: Sequence[PublicRun]) -> str:
    """Published and predicted step time and MFU, and the mean error below."""
    predicted = {
        id(each.case): each for each in predict([run.case for run in runs], from_priors(), {})
    }
    rows = [_row(run, predicted[id(run.case)]) for run in runs]
    head = ("training", "devices", "layout", "published", "predicted", "90 % interval", "MFU", "by")
    errors = [each.error for each in predicted.values()]
    inside = sum(
        each.low <= (each.case.step_seconds or 0) <= each.high for each in predicted.values()
    )
    said = (
        f"{len(rows)} trainings: mean error {statistics.mean(errors):.1%}, median"
        f" {statistics.median(errors):.1%}, at most {max(errors):.1%}; {inside} lie in the"
        " interval."
    )
    return f"{table_of(head, rows)}\n\n{said}"


def _row(run: PublicRun, predicted: Prediction) -> list[str]:
    case = run.case
    assert case.step_seconds
    flops = decoder(case.shape).flops * case.batch
    peak = case.gpus * case.cluster.device.peak(case.precision)
    measured, expected = (flops / (each * peak) for each in (case.step_seconds, predicted.seconds))
    return [
        run.name,
        f"{case.gpus:,} {case.device} {case.precision}",
        _layout(case),
        f"{case.step_seconds:.3g} s",
        f"{predicted.seconds:.3g} s",
        f"{predicted.low:.3g}–{predicted.high:.3g} s",
        f"{measured:.0%}, {expected:.0%}",
        f"{predicted.seconds / case.step_seconds - 1:+.0%}",
    ]


def _layout(case: Case) -> str:
    degrees = {
        "replicas": case.replicas,
        "shards": case.shards,
        "tensor": case.tensor,
        "pipeline": case.pipeline,
    }
    return " x ".join(f"{number} {name}" for name, number in degrees.items() if number > 1)


def _billions(case: Case) -> str:
    return f"{decoder(case.shape).parameters / 1e9:.0f}B"


if __name__ == "__main__":
    main()
