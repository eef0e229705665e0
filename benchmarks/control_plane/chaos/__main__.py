"""Random faults in light workers on nodes: 16 nodes with 4 workers each, real membership and links.

After each fault, lost workers are replaced, and all must take steps in one generation again. Then
the history is checked: generations never step side by side, the steps that count are each decided
step once, and no worker that a fault did not touch was ever left out.
"""

import json
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median

from rich.console import Console

from benchmarks.common.output import argument_parser, print_goals, table
from benchmarks.control_plane.board import Field
from benchmarks.control_plane.chaos.faults import FAULTS
from benchmarks.control_plane.chaos.history import History
from benchmarks.control_plane.nodes import enter_namespaces
from benchmarks.control_plane.rig import Rig, TooSlow

_RECOVERY_SECONDS, _START_SECONDS = 60.0, 60.0


@dataclass(frozen=True)
class Outcome:
    """One fault and what came of it."""

    fault: str
    seconds: float
    """From the end of the fault until all workers, replaced ones included, step together."""
    generations: int
    left_out: int
    """Untouched workers that were renamed, died or ended."""


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--workers", type=int, default=4, help="on each node")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", type=float, default=1.5, help="in seconds")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--keep", type=Path, help="copy the workers' logs to this folder")
    options = parser.parse_args()
    enter_namespaces()
    scratch = Path(tempfile.mkdtemp(prefix="control-plane-chaos-"))
    folder = scratch / "run"
    members = options.nodes * options.workers
    rig = Rig(
        members,
        folder,
        per_node=options.workers,
        spare_rows=members * options.faults,
        lease_seconds=options.lease,
        step_seconds=0.05,
    )
    outcomes: list[Outcome] = []
    violations: list[str] = []
    try:
        rig.start(_START_SECONDS)
        chance = Random(options.seed)
        kinds = [list(FAULTS)[number % len(FAULTS)] for number in range(options.faults)]
        chance.shuffle(kinds)
        for number, kind in enumerate(kinds):
            outcomes.append(inject(rig, kind, chance))
            print(f"{number + 1}: {outcomes[-1]}", flush=True)
        last = [f"steps-{row}" for row in rig.living]
    except TooSlow as error:
        violations.append(f"fault {len(outcomes) + 1}, {kinds[len(outcomes)]}: {error}")
        last = []
    finally:
        rig.close()
        history = History.read(folder)
        if options.keep:
            shutil.copytree(folder, options.keep)
        shutil.rmtree(scratch)
    violations += history.violations(last)
    violations += ["histories diverged"] * rig.diverged
    if options.json:
        rows = [asdict(each) for each in outcomes]
        options.json.write_text(json.dumps({"outcomes": rows, "violations": violations}, indent=2))
    _print(outcomes, history, violations)
    raise SystemExit(bool(violations) or any(each.left_out for each in outcomes))


def inject(rig: Rig, kind: str, chance: Random) -> Outcome:
    """Inject one fault, replace what it cost, and wait until all workers step together."""
    before, names = rig.generation(), {row: rig.board.get(row, Field.RENAMED) for row in rig.living}
    touched = FAULTS[kind](rig, chance)
    began = time.monotonic()
    ended_at = time.monotonic_ns()
    rig.wait(lambda: _is_whole(rig, ended_at), _RECOVERY_SECONDS)
    seconds = time.monotonic() - began
    left_out = [
        row
        for row, name in names.items()
        if row not in touched
        and (row not in rig.living or rig.board.get(row, Field.RENAMED) != name)
    ]
    return Outcome(kind, seconds, rig.generation() - before, len(left_out))


def _is_whole(rig: Rig, since: int) -> bool:
    """Replace workers that are gone; return whether all have stepped since, in one generation.

    A worker that was stopped is still in the generation, whose other members may have given it up.
    """
    rig.forget_dead()
    for node in rig.nodes:
        for _ in range(rig.per_node - len(rig.rows_on(node.number))):
            rig.fork(node.number, joins=True)
    newest = rig.generation()
    rows = rig.in_generation(newest)
    if len(rows) != rig.members or rig.board.get(rows[0], Field.MEMBERS) != rig.members:
        return False
    return all(
        rig.board.get(row, Field.STEPPED_AT) > max(since, rig.board.get(row, Field.BEGUN_AT))
        for row in rows
    )


def _print(outcomes: list[Outcome], history: History, violations: list[str]) -> None:
    shown = table(
        "seconds from the fault's end until all workers step together, replaced ones included",
        "fault",
        "times",
        "median",
        "most",
        "generations",
        "left out",
    )
    for kind in FAULTS:
        some = [each for each in outcomes if each.fault == kind]
        if some:
            shown.add_row(
                kind,
                str(len(some)),
                f"{median(each.seconds for each in some):.2f}",
                f"{max(each.seconds for each in some):.2f}",
                str(sum(each.generations for each in some)),
                str(sum(each.left_out for each in some)),
            )
    Console().print(shown)
    for words, count in Counter(violations).items():
        print(f"VIOLATED {count} times: {words}")
    print_goals(
        {
            f"{len(outcomes)} faults, {history.steps:,} steps, {history.repeated} of them repeated,"
            f" {len(violations)} violations": not violations,
            "no untouched worker was left out": not any(each.left_out for each in outcomes),
        }
    )


if __name__ == "__main__":
    main()
