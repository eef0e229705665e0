"""Compute the tables of docs/recipes.md: plans for 1 to 1,024 devices. Nothing runs.

Without `--write` it prints the tables; with it they replace those on the page.
"""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.output import argument_parser
from benchmarks.planner.pages.worked_plans import put_out, table_of, words
from paceline.cluster.catalog import link, usual_cluster
from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.search.ranking import search
from paceline.profile.named_models import profile_of
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import TrainingPrecision
from paceline.specs.plans.estimate import Estimate

PAGE = Path(__file__).parents[3] / "docs" / "recipes.md"
DEVICES = (1, 16, 64, 256, 1024)


@dataclass(frozen=True)
class Recipe:
    """A model with the devices, precision and batches that it is planned for."""

    model: str
    device: str
    precision: TrainingPrecision
    batch: int
    """Fixed for any number of devices: strong scaling."""
    per_device: int
    """Samples per device where the batch grows with the devices: weak scaling."""
    papers: dict[int, float]
    """Efficiency by number of nodes, from the papers that Paceline's requirements come from."""


RECIPES = {
    "resnet50": Recipe(
        *("resnet50", "v100-32gb", "fp16", 32_768, 64),
        papers={16: 0.95, 64: 0.89, 256: 0.78, 1024: 0.62},
    ),
    "bert": Recipe(
        *("bert-large", "v100-32gb", "fp16", 32_768, 32),
        papers={16: 0.93, 64: 0.86, 256: 0.72, 1024: 0.55},
    ),
    "gpt": Recipe(
        *("gpt3-175b", "a100-80gb", "bf16", 1536, 6),
        papers={16: 0.91, 64: 0.83, 256: 0.69, 1024: 0.51},
    ),
    "vit": Recipe(*("vit-l16", "v100-32gb", "fp16", 4096, 64), papers={}),
}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    options = parser.parse_args()
    tables = {name: table(recipe) for name, recipe in RECIPES.items()}
    put_out(tables, PAGE, "recipes", write=options.write)


def table(recipe: Recipe) -> str:
    """Tabulate the fastest layout for each number of devices, and both efficiencies."""
    strong = {devices: planned(recipe, devices, recipe.batch) for devices in DEVICES}
    weak = {devices: planned(recipe, devices, recipe.per_device * devices) for devices in DEVICES}
    fits = [devices for devices in DEVICES if strong[devices] and weak[devices]]
    fixed = dict.fromkeys(DEVICES, recipe.batch)
    growing = {devices: recipe.per_device * devices for devices in DEVICES}
    rows = []
    for devices in DEVICES:
        estimate = strong[devices]
        papers = recipe.papers.get(devices)
        published = "" if papers is None else f"{papers:.2f}"
        if estimate is None or devices not in fits:
            rows.append([f"{devices:,}", "does not fit", "", "", "", published])
            continue
        took = estimate.step_seconds
        rows.append(
            [
                f"{devices:,}",
                words(estimate.layout).removeprefix(", "),
                f"{took.value:.3g} ({took.low:.3g}–{took.high:.3g})",
                f"{efficiency(strong, fixed, devices, fits[0]):.2f}",
                f"{efficiency(weak, growing, devices, fits[0]):.2f}",
                published,
            ]
        )
    head = (
        "devices",
        f"fastest layout, batch {recipe.batch:,}",
        "step, s (90 % interval)",
        f"efficiency, batch {recipe.batch:,}",
        f"efficiency, {recipe.per_device} per device",
        "the papers, as many nodes",
    )
    return table_of(head, rows)


def planned(
    recipe: Recipe, devices: int, batch: int, network: str | None = None
) -> Estimate | None:
    """Return the fastest layout's estimate, or None where none fits into memory.

    `network` is a link of the catalog in place of the device's usual one.
    """
    fit = from_priors()
    where = cluster(recipe.device, devices)
    if network is not None:
        where = where.model_copy(update={"between": link(network)})
    found = search(profile_of(recipe.model), where, batch, fit, recipe.precision)
    best = found.best(fit, 1, recipe.precision)
    return best[0] if best else None


def cluster(name: str, devices: int) -> Cluster:
    """Return nodes of eight devices, or one device, with the device's usual links."""
    nodes = usual_cluster(name, max(1, devices // 8))
    return nodes.model_copy(update={"devices_per_node": min(8, devices)})


def efficiency(
    estimates: dict[int, Estimate | None], batches: dict[int, int], devices: int, fewest: int
) -> float:
    """Return the samples/s per device, relative to the fewest devices."""
    rates = {
        each: batches[each] / estimate.step_seconds.value / each
        for each, estimate in estimates.items()
        if estimate
    }
    return rates[devices] / rates[fewest]


if __name__ == "__main__":
    main()
