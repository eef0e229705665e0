"""How membership grows with the number of workers: connections, heartbeats, and one regroup.

MEASURED up to some hundred workers: real members with real connections over loopback, whose
trainings are fakes. All share one event loop on one core, so that seconds are those of everybody's
work, one after another. COMPUTED for thousands of nodes with eight workers each: by the code that
says who watches whom and how questions spread, with the sizes of real messages; nothing is sent.

Regroups are measured with a longer lease than the usual one, since the members that share this one
core would else take each other for lost.
"""

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common.output import argument_parser
from benchmarks.membership.computed import Computed, compute
from benchmarks.membership.crew import PER_NODE
from benchmarks.membership.measured import Quiet, Regroup, quiet, regroup
from paceline.specs import Faults

LEASE_SECONDS = Faults().lease_seconds
REGROUP_LEASE_SECONDS = 10.0
NODES = (1_000, 10_000)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    quiets = [quiet(size, LEASE_SECONDS) for size in track(options.sizes, "quiet")]
    regroups = [regroup(size, REGROUP_LEASE_SECONDS) for size in track(options.sizes, "regroups")]
    computed = [compute(nodes, LEASE_SECONDS) for nodes in track(NODES, "computed")]
    if options.json:
        rows = {
            "quiet": [asdict(each) for each in quiets],
            "regroups": [asdict(each) for each in regroups],
            "computed": [asdict(each) for each in computed],
        }
        options.json.write_text(json.dumps(rows, indent=2))
    console = Console()
    console.print(_table_of_watching(quiets, computed))
    console.print(_table_of_regroups(regroups, computed))


def _table_of_watching(quiets: list[Quiet], computed: list[Computed]) -> Table:
    table = Table(title=f"While all is well; lease {LEASE_SECONDS} s, {PER_NODE} workers on a node")
    for column in ("workers", "", "depth", "connections, most", "mean", "beats/s, most", "all"):
        table.add_column(column, justify="right")
    for one in quiets:
        table.add_row(
            f"{one.members:,}",
            "measured",
            "",
            str(one.most_connections),
            f"{one.mean_connections:.2f}",
            f"{one.most_beats_per_second:.0f}",
            f"{one.beats_per_second:,.0f}",
        )
    for each in computed:
        table.add_row(
            f"{each.members:,}",
            "computed",
            str(each.depth),
            str(each.most_connections),
            "",
            f"{each.most_beats_per_second:.0f}",
            "",
        )
    return table


def _table_of_regroups(regroups: list[Regroup], computed: list[Computed]) -> Table:
    table = Table(title="One worker is lost; messages without beats")
    columns = ("workers", "", "messages", "busiest", "bytes", "busiest", "largest message")
    for column in (*columns, "notices", "connections, most", "seconds", "left out"):
        table.add_column(column, justify="right")
    for one in regroups:
        table.add_row(
            f"{one.members:,}",
            f"measured, lease {one.lease_seconds:g} s",
            f"{one.messages:,}",
            f"{one.most_messages:,}",
            _bytes(one.sent_bytes),
            _bytes(one.most_sent_bytes),
            "",
            f"{one.notices:,}",
            f"{one.most_new_connections:,}",
            f"{one.seconds:.2f}",
            str(one.left_out),
        )
    for each in computed:
        table.add_row(
            f"{each.members:,}",
            "computed, no notices",
            f"{each.messages:,}",
            f"{each.most_messages:,}",
            _bytes(each.sent_bytes),
            _bytes(each.most_sent_bytes),
            _bytes(each.largest_message) + ("" if each.fits else ": refused"),
        )
    return table


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


if __name__ == "__main__":
    main()
