"""How the control plane scales: start, regroups, joins, cuts and flapping links.

PROCESSES: up to 1,000 real worker processes with the real membership, on nodes that are network
namespaces (as a testbed's), which take steps without torch. EVENT LOOPS: up to 10,000 real members
in a few processes, over loopback. SIMULATED: message by message beyond, with costs fitted on both;
where they overlap, the table of ratios compares all three.

Two cores do the work of all members, so the least time that a regroup can take here is the CPU time
of all of them, divided by two ("floor"). On a cluster each member has its own core.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.common.output import argument_parser, print_goals, table
from benchmarks.control_plane import loops
from benchmarks.control_plane.curves import picture
from benchmarks.control_plane.fit import exponent, fitted_costs
from benchmarks.control_plane.measurement import KILLED, Measurement, grouped, median_of
from benchmarks.control_plane.nodes import enter_namespaces
from benchmarks.control_plane.scenarios import scenarios
from benchmarks.control_plane.simulated import Costs, simulate

CORES = 2
ONE_CORE_EACH = "simulated, a core each"
GROWTH_FROM = 64
"""Smaller crews are on one node or a few, without a tree."""
LOOP_EVENTS = (KILLED, "leader killed")
LEASE_SECONDS, LOOP_LEASE_SECONDS = 1.5, 120.0
LOOP_LEASE_SECONDS_PER_MEMBER = 0.1
"""Each member's own computing grows with the number of members, and two cores do all of it."""
LEASES_FROM = {200: 10.0, 500: 30.0}
"""With so many processes, two cores need longer to send all heartbeats and answers of a lease."""
START_GOAL_SECONDS, REGROUP_GOAL_SECONDS = 5.0, 1.0


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--members", default="8,64,256", help="sizes of the crews of processes")
    parser.add_argument("--loops", default="64,256,1000", help="sizes in event loops; 0: none")
    parser.add_argument("--simulated", default="64,256,1000,10000,100000", help="0: none")
    parser.add_argument("--kills", type=int, default=3, help="workers killed and replaced")
    parser.add_argument("--lease", type=float, help="lease of processes, in seconds")
    parser.add_argument("--seconds", type=float, default=600, help="start no crew after this time")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--svg", type=Path, help="draw the growth into this file")
    options = parser.parse_args()
    enter_namespaces()
    folder = Path(tempfile.mkdtemp(prefix="control-plane-"))
    found: list[Measurement] = []
    try:
        failures: list[str] = []
        for each in _measured(options, folder, time.monotonic() + options.seconds, failures):
            found.append(each)
            print(f"{each.how} {each.members} {each.event}: {each.seconds:.2f} s", file=sys.stderr)
    finally:
        shutil.rmtree(folder)
    costs = fitted_costs([each for each in found if each.event == KILLED])
    found += [simulate(size, costs, cores=cores) for size, cores in _simulations(options.simulated)]
    if options.json:
        rows = [asdict(each) for each in found]
        report = {"costs": asdict(costs), "measured": rows, "failures": failures}
        options.json.write_text(json.dumps(report, indent=2))
    if options.svg:
        options.svg.write_text(picture(found))
    _print(found, costs)
    print_goals({f"all crews finished: {', '.join(failures) or 'yes'}": not failures})


def _sizes(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if int(word)]


def _measured(
    options: argparse.Namespace, folder: Path, until: float, failures: list[str]
) -> Iterator[Measurement]:
    for size in _sizes(options.members):
        if time.monotonic() > until:
            return
        longer = [seconds for least, seconds in LEASES_FROM.items() if size >= least]
        lease = options.lease or max(longer, default=LEASE_SECONDS)
        step_seconds = max(0.02, size / 500)
        try:
            yield from scenarios(size, folder / f"p{size}", lease, step_seconds, options.kills)
        except TimeoutError as error:
            failures.append(f"{size} processes: {error}")
    for size in _sizes(options.loops):
        lease = max(LOOP_LEASE_SECONDS, size * LOOP_LEASE_SECONDS_PER_MEMBER)
        for event in LOOP_EVENTS:
            if time.monotonic() > until:
                return
            run = folder / f"l{size}-{event.replace(' ', '-')}"
            try:
                yield loops.measure(size, event, run, lease, lease)
            except TimeoutError as error:
                failures.append(f"{size} in event loops, {event}: {error}")


def _simulations(text: str) -> list[tuple[int, int | None]]:
    """Return sizes with this machine's cores, to be compared, and with a core per member."""
    return [(size, cores) for size in _sizes(text) for cores in (CORES, None)]


def _print(found: Sequence[Measurement], costs: Costs) -> None:
    console = Console()
    which = ("how", "event", "members")
    times = table(
        *("medians", *which, "lost", "seconds", "beyond lease", "left out", "times"), texts=2
    )
    cost = table(
        "medians; bytes without heartbeats",
        *(*which, "messages", "bytes", "busiest", "per member", "CPU s", "floor s"),
        texts=2,
    )
    for (how, size, event), some in grouped(found).items():
        one = median_of(some)
        beyond = one.beyond_lease_seconds
        times.add_row(
            how,
            event,
            f"{size:,}",
            str(one.lost),
            f"{one.seconds:.2f}",
            "" if beyond is None else f"{beyond:.2f}",
            str(sum(each.left_out for each in some)),
            str(len(some)),
        )
        cost.add_row(
            how,
            event,
            f"{size:,}",
            f"{one.messages:,}",
            in_bytes(one.total_bytes),
            in_bytes(one.busiest_bytes),
            in_bytes(one.total_bytes / size),
            f"{one.cpu_seconds:.2f}",
            f"{one.floor_seconds:.2f}",
        )
    console.print(times)
    console.print(cost)
    console.print(_agreement(found))
    _print_growth(found, costs)


def _agreement(found: Sequence[Measurement]) -> Table:
    """Compare the three ways where they overlap, for a killed worker."""
    shown = table(
        "a killed worker, compared with processes",
        "how",
        "members",
        "messages",
        "bytes",
        "CPU s",
        "seconds",
    )
    killed = {key[:2]: median_of(some) for key, some in grouped(found).items() if key[2] == KILLED}
    for (how, size), one in killed.items():
        base = killed.get(("processes", size)) or killed.get(("event loops", size))
        if base is None or base is one or how == ONE_CORE_EACH:
            continue
        pairs = (
            (one.messages, base.messages),
            (one.total_bytes, base.total_bytes),
            (one.cpu_seconds, base.cpu_seconds),
            (one.seconds, base.seconds),
        )
        ratios = (f"{mine / other:.2f}" for mine, other in pairs)
        shown.add_row(f"{how} / {base.how}", f"{size:,}", *ratios)
    return shown


def _print_growth(found: Sequence[Measurement], costs: Costs) -> None:
    print(
        f"fitted costs: {1e6 * costs.per_message:.0f} us per message, "
        f"{1e9 * costs.per_byte:.1f} ns per byte, {1e3 * costs.per_member:.2f} ms per member, "
        f"{1e6 * costs.per_member_squared:.2f} us per member and member of the roster"
    )
    for how in dict.fromkeys(each.how for each in found):
        groups = grouped([each for each in found if each.how == how and each.event == KILLED])
        ones = [median_of(some) for some in groups.values() if some[0].members >= GROWTH_FROM]
        if len(ones) < 2:
            continue
        sizes = [one.members for one in ones]
        per_member = exponent(sizes, [one.total_bytes / one.members for one in ones])
        busiest = exponent(sizes, [one.busiest_bytes for one in ones])
        print(
            f"{how}: bytes per member grow as N^{per_member:.2f}, the busiest member's as "
            f"N^{busiest:.2f} ({min(sizes):,} to {max(sizes):,} members)"
        )
    real = [each for each in found if each.how == "processes"]
    largest = max((each.members for each in real), default=0)
    start = [e.seconds for e in real if e.members == largest and e.event == "start"]
    kills = [e.seconds for e in real if e.members == largest and e.event == KILLED]
    silent = [e.beyond_lease_seconds for e in real if e.members == largest]
    beyond = [seconds for seconds in silent if seconds is not None]
    goals = {f"nobody living left out ({len(real)} events)": not any(e.left_out for e in real)}
    if start and kills:
        goals |= {
            f"start within {START_GOAL_SECONDS:g} s with {largest:,} processes: {start[0]:.2f} s": (
                start[0] <= START_GOAL_SECONDS
            ),
            f"regroup within {REGROUP_GOAL_SECONDS:g} s of a kill, median: {median(kills):.2f} s": (
                median(kills) <= REGROUP_GOAL_SECONDS
            ),
        }
    if beyond:
        words = f"silent losses within {REGROUP_GOAL_SECONDS:g} s beyond the lease, at most"
        goals[f"{words}: {max(beyond):.2f} s"] = max(beyond) <= REGROUP_GOAL_SECONDS
    print_goals(goals)


def in_bytes(number: float) -> str:
    """Return a number of bytes with its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


if __name__ == "__main__":
    main()
