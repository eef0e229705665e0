"""Strong and weak scaling of a small recipe, beside the papers' figures on 2, 4 and 8 nodes.

Hardware: the recipe in small on one and two workers of this machine, a core each. Emulated: one
core is timed, layer by layer of the model; then every node of a testbed waits as long as that core
computes, and sends real gradients of the recipe's size over links of 1gbit, under a real Slurm. So
the emulated figures stand for nodes with one such core each. *At most*: if only devices and links
took time, and all communication but the forward's overlapped.

`--only` runs one part; a study that is there already is not measured again.
"""

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.common.output import argument_parser, table
from benchmarks.common.processes import paceline
from benchmarks.scaling.__main__ import BYTES_PER_SECOND, PAYLOAD, PUBLISHED
from benchmarks.scaling.timed_recipes import RECIPES, Layer, Recipe, timed

PACED = Path(__file__).with_name("paced_train.py")
BOX, LINK = "recipe-bench", "1gbit"
NODES, WORKERS = (1, 2, 4, 8), (1, 2)
BUCKET_MEGABYTES = 1
PARTS = ("hardware", "strong", "weak")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--recipe", choices=RECIPES, default="resnet50")
    parser.add_argument("--out", type=Path, required=True, help="folder for the studies")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--repeat", type=int, default=2)
    asked = parser.parse_args()
    recipe = RECIPES[asked.recipe]
    asked.out.mkdir(parents=True, exist_ok=True)
    if "hardware" in asked.only:
        for kind in ("strong", "weak"):
            _show(f"{kind}, workers of this machine", _on_hardware(asked, recipe, kind))
    emulated = [kind for kind in ("strong", "weak") if kind in asked.only]
    if emulated:
        costs = asked.out / "costs.json"
        if not costs.exists():
            costs.write_text(json.dumps(timed(recipe)))
        paceline("testbed", "up", "--name", BOX, "--nodes", str(max(NODES)), "--link", LINK)
        try:
            for kind in emulated:
                found = _emulated(asked, kind, costs)
                _show(f"{kind}, nodes of a testbed", found, json.loads(costs.read_text()))
        finally:
            paceline("testbed", "down", "--name", BOX)


def _on_hardware(asked: argparse.Namespace, recipe: Recipe, kind: str) -> dict[str, Any]:
    return _study(
        asked,
        f"hardware-{kind}",
        *(recipe.script, "--workers", ",".join(map(str, WORKERS)), "--kind", kind),
        *("--steps", "30", *recipe.study),
        script=recipe.words,
        variables={"OMP_NUM_THREADS": 1},  # one worker would use both cores
    )


def _emulated(asked: argparse.Namespace, kind: str, costs: Path) -> dict[str, Any]:
    varied = ("--vary", "batch=1,8") if kind == "strong" else ()
    return _study(
        asked,
        f"emulated-{kind}",
        *(PACED, "--testbed", BOX, "--nodes", ",".join(map(str, NODES)), "--kind", kind, *varied),
        *("--bucket-megabytes", BUCKET_MEGABYTES, "--steps", "20"),
        script=(costs.resolve(),),
    )


def _study(
    asked: argparse.Namespace,
    name: str,
    *words: object,
    script: tuple[object, ...],
    variables: Mapping[str, object] = {},
) -> dict[str, Any]:
    said = paceline(
        *("study", *words, "--warm-up", "5", "--repeat", asked.repeat),
        *("--out", asked.out / name, "--json", "--", *script),
        variables=variables,
    )
    found: dict[str, Any] = json.loads(said)
    return found


def _most(layers: list[Layer], batch: int, workers: int) -> float:
    """Return the samples/s that devices and links allow."""
    forward, backward, nbytes = (sum(each) for each in zip(*layers, strict=True))
    local = batch / workers
    exchange = 2 * (workers - 1) / workers * nbytes / (PAYLOAD * BYTES_PER_SECOND[LINK])
    seconds: float = local * forward + max(local * backward, exchange)
    return batch / seconds


def _show(title: str, found: dict[str, Any], costs: dict[str, Any] | None = None) -> None:
    columns = ("workers", "batch", "ms/step", "speed-up", "95 %", "efficiency", "at most", "papers")
    shown = table(title, *columns)
    for each in found["points"]:
        point, speedup, runs = each["point"], each["speedup"], each["runs"]
        if speedup is None:
            raise SystemExit("\n".join(each["failures"]))
        workers, batch = point["nodes"] * point["devices_per_node"], runs[0]["batch"]
        ends = (speedup["low"], speedup["high"])
        most = "–"
        if costs is not None:
            alone = batch / workers if found["study"]["kind"] == "weak" else batch
            rates = (_most(costs["layers"], *each) for each in ((batch, workers), (alone, 1)))
            most = f"{next(rates) / next(rates):.2f}"
        shown.add_row(
            f"{workers}",
            f"{batch}",
            f"{1e3 * statistics.mean(run['step_seconds'] for run in runs):.0f}",
            f"{speedup['value']:.2f}",
            "–" if None in ends else "{:.2f} to {:.2f}".format(*ends),
            f"{speedup['value'] / workers:.2f}",
            most,
            f"{PUBLISHED[workers]:.2f}" if workers in PUBLISHED else "–",
        )
    Console().print(shown)


if __name__ == "__main__":
    main()
