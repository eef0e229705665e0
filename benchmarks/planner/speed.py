"""How many layouts one core scores in a second, and how long plans for large clusters take.

Set `OMP_NUM_THREADS=1`: the figures are those of one core.
"""

import json
import time
from itertools import product

import numpy as np

from benchmarks.common.output import argument_parser
from paceline.cluster.catalog import usual_cluster
from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.memory import memory
from paceline.plan.cost.step_time import StepModel
from paceline.plan.search.ranking import every, search
from paceline.profile.families import Decoder, decoder
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.kernels import KernelGrid, KernelSource, KernelTable

GPT3 = decoder(Decoder(layers=96, hidden=12288, heads=96, seq=2048, vocab=51200))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = {
        "layouts_per_second": layouts_per_second(_cluster(1024)),
        "layouts_per_second_with_kernels": layouts_per_second(_with_kernels(_cluster(1024))),
        **{f"plan_{devices}_devices_seconds": plan_seconds(devices) for devices in (1024, 100_000)},
    }
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:34} {value:,.3g}")


def layouts_per_second(cluster: Cluster) -> float:
    """Time and memory, the best of twenty rounds, by CPU time: the machine may be shared."""
    some = every(GPT3, cluster, 6144)
    layouts = some.take(np.arange(16_384) % len(some))
    model = StepModel(GPT3, cluster, "bf16", Engine(), Coefficients.prior())
    seconds = []
    for _ in range(20):
        begin = time.process_time()
        model.times(layouts, 6144.0)
        memory(GPT3, layouts, 6144.0, Engine())
        seconds.append(time.process_time() - begin)
    return len(layouts) / min(seconds)


def plan_seconds(devices: int) -> float:
    begin = time.perf_counter()
    found = search(GPT3, _cluster(devices), devices * 16, from_priors())
    found.best(from_priors(), 50, "bf16")
    return time.perf_counter() - begin


def _with_kernels(cluster: Cluster) -> Cluster:
    """Return the cluster with a made-up table of the size that a probe writes."""
    axes = {
        "linear": ((128, 512, 2048, 8192, 32768), *[(256, 1024, 4096, 16384)] * 2),
        "attention": ((8, 64, 512), (256, 1024, 4096), (64, 128, 256)),
    }
    grids = []
    for kernel, sizes in axes.items():
        seconds = [1e-14 * one * two * three for one, two, three in product(*sizes)]
        made = {"kernel": kernel, "precision": "bf16", "axes": sizes, "causal": kernel != "linear"}
        times = {"forward_seconds": seconds, "backward_seconds": seconds}
        grids.append(KernelGrid.model_validate(made | times))
    source = KernelSource(device=cluster.device.name, versions=(), neighbors=8)
    table = KernelTable(source=source, measured_on="", grids=tuple(grids))
    return cluster.model_copy(update={"kernels": table})


def _cluster(devices: int) -> Cluster:
    return usual_cluster("h100-80gb", devices // 8)


if __name__ == "__main__":
    main()
