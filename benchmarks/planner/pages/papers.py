"""Compute the tables of docs/papers: the planner's figures and published data beside the papers'.

Nothing runs. Without `--write` it prints the tables; with it they replace those on the pages.
Tables of published data need the folder `--data`; where it is absent, they stay as they are.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from benchmarks.common.output import argument_parser
from benchmarks.planner.pages.papers_computed import (
    collective_terms,
    few_nodes,
    gpus,
    many_nodes,
    overlap,
    precision,
    ratios,
    step_parts,
)
from benchmarks.planner.pages.papers_read import capped, gpt_scaling, large_batches
from benchmarks.planner.pages.worked_plans import put_out
from benchmarks.planner.score.cases import DATA

FOLDER = Path(__file__).parents[3] / "docs" / "papers"
TOPIC = "papers"


Tables = Mapping[str, Mapping[str, str]]
READ: Mapping[str, Mapping[str, Callable[[Path], str]]] = {
    "large-batches.md": {"mlperf": large_batches},
    "scaling.md": {"megatron": gpt_scaling},
    "energy.md": {"caps": capped},
}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="published tables: %(default)s")
    parser.add_argument("--write", action="store_true", help=f"into {FOLDER.name}/")
    options = parser.parse_args()
    found = [computed()]
    if options.data.is_dir():
        found.append(read(options.data))
    else:
        print(f"{options.data} is absent: the tables of published data stay as they are\n")
    for pages in found:
        for page, tables in pages.items():
            put_out(tables, FOLDER / page, TOPIC, write=options.write)


@cache
def computed() -> Tables:
    """Return the planner's tables by page and name."""
    return {
        "compression.md": {"ratios": ratios()},
        "collectives.md": {"terms": collective_terms(), "overlap": overlap()},
        "scaling.md": {
            "few nodes": few_nodes(),
            "many nodes": many_nodes(),
            "parts": step_parts(),
            "gpus": gpus(),
        },
        "energy.md": {"precision": precision()},
    }


def read(data: Path) -> Tables:
    """Return the tables of published data by page and name."""
    return {
        page: {name: made(data) for name, made in tables.items()} for page, tables in READ.items()
    }


if __name__ == "__main__":
    main()
