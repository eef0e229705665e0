"""`paceline plan --compare`: what a training costs at several sites."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from paceline.cli.console import print_json
from paceline.cli.options.number_list import number_list
from paceline.cli.options.site_defaults import read_site
from paceline.observe.progress_bar import progress_bar
from paceline.specs import PacelineError

if TYPE_CHECKING:
    from paceline.plan.inputs import PlanRequest
    from paceline.plan.site_comparison import OfferedSite


def refuse_beside_compare(context: typer.Context) -> None:
    """Refuse options on the command line that `--compare` would ignore."""
    for name in ("cluster", "device", "nodes", "price", "queue"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":  # a site file may set them
            raise PacelineError(
                f"--{name} was given with --compare, which takes clusters, nodes and prices from"
                " the sites' files, and leaves queues out",
                fix=f"leave --{name} out, or plan for one site without --compare",
            )


def compare_sites(request: "PlanRequest", files: str, *, json: bool, quiet: bool) -> None:
    """Plan the training at each of the sites, and print what it costs there."""
    from paceline.cli.tables.site_table import show
    from paceline.plan.site_comparison import compare

    sites = [_offered(Path(name.strip())) for name in files.split(",")]
    if len(sites) < 2:
        raise PacelineError(
            f"--compare {files} names one site",
            fix="give two or more files: --compare a.toml,b.toml",
        )
    with progress_bar("sites", show=not (json or quiet)) as advance:
        found = compare(request, sites, advance)
    if json:
        print_json(found.model_dump(mode="json"), "plan.compare")
    else:
        show(found)


def _offered(file: Path) -> "OfferedSite":
    from paceline.plan.site_comparison import OfferedSite

    site = read_site(file)
    options = site.of_command("plan")
    if site.prices is None:
        raise PacelineError(
            f"{file} has no prices", fix="write per_node_hour under [prices], and its source"
        )
    for key in ("cluster", "device"):
        if not isinstance(options.get(key), str | None):
            raise PacelineError(
                f"{file}: [options] sets {key} to {options[key]!r}", fix="write its name in quotes"
            )
    cluster, nodes = options.get("cluster"), options.get("nodes")
    return OfferedSite(
        name=site.name or file.stem,
        prices=site.prices,
        cluster=None if cluster is None else file.parent / cluster,
        device=options.get("device"),
        nodes=None if nodes is None else tuple(number_list("nodes", str(nodes))),
    )
