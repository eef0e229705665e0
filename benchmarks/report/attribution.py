"""Is a delay found where it was put? Delays in 40 runs, and what their reports name.

Four nodes of a testbed with real Slurm and shaped links; devices are paced (emulated), what they
exchange is real. In each run one thing is delayed: loading the data of one worker or of all (20 ms
a step), computing of one worker (1.5 times as long), the links (100mbit in place of 1gbit), or
every write of a checkpoint (100 ms each, a checkpoint every four steps, so that training has to
wait for them). It is found if the report names this, and the worker. Runs without a delay stand
beside them: nothing but computing is to be named there.
"""

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common.output import argument_parser
from paceline import testbed

NAME, NODES = "attribution-box", 4
FAST, SLOW = "1gbit", "100mbit"
TRAIN = Path(__file__).parent / "attribution_train.py"


@dataclass(frozen=True)
class Injection:
    """A delay."""

    kind: str
    where: str = "none"
    worker: int = -1
    seconds: float = 0.0

    def found_in(self, breakdown: dict[str, Any]) -> bool:
        """Whether the report names it, and the worker."""
        limit, slow = (
            breakdown["limit"],
            [(each["rank"], each["reason"]) for each in breakdown["slow"]],
        )
        if self.where == "disk":  # worker 0 has most to write, and may be named for it
            return limit == "checkpoints" or (limit, slow[:1]) == (
                "slow worker",
                [(0, "checkpoints")],
            )
        if self.worker >= 0:
            return (limit, slow) == ("slow worker", [(self.worker, self.where)])
        expected = {"none": "compute", "link": "network", "data": "data"}[self.where]
        return bool(limit == expected and not slow)


def injections(times: int) -> list[Injection]:
    """All of them, the kinds in turn."""
    found = []
    for number in range(times):
        worker = number % NODES
        found += [
            Injection("data of one worker", "data", worker, 0.020),
            Injection("data of all", "data", -1, 0.020),
            Injection("one worker computes 1.5 x", "compute", worker, 0.020),
            Injection(f"links at {SLOW}", "link"),
            Injection("slow disk", "disk", -1, 0.100),
        ]
        found += [Injection("nothing")] if number % 2 else []
    return found


def run(injection: Injection, folder: Path) -> dict[str, Any]:
    """A run's breakdown."""
    rate = SLOW if injection.where == "link" else FAST
    for node in testbed.status(NAME).nodes:
        testbed.link(NAME, node.name, rate=rate)
    values = f'WHERE, WHO, SECONDS = "{injection.where}", {injection.worker}, {injection.seconds}'
    train = folder / "train.py"
    train.write_text(re.sub(r"^WHERE, WHO, SECONDS = .*$", values, TRAIN.read_text(), flags=re.M))
    saving = ["--save-every", "4"] if injection.where == "disk" else ["--save-every", "0"]
    command = [
        *(sys.executable, "-m", "paceline", "submit", train, "--nodes", NODES, "--testbed", NAME),
        *("--wait", "--json", *saving),
    ]
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, check=True
    )
    breakdown: dict[str, Any] = json.loads(done.stdout)["breakdown"]
    return breakdown


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--times", type=int, default=8, help="of each kind")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    console = Console()
    testbed.up(testbed.TestbedSpec(name=NAME, nodes=NODES, link=FAST))
    rows: list[dict[str, Any]] = []
    try:
        with tempfile.TemporaryDirectory(prefix="paceline-", dir="/var/tmp") as folder:
            for injection in track(injections(given.times), "runs", console=Console(stderr=True)):
                breakdown = run(injection, Path(folder))
                found = injection.found_in(breakdown)
                rows.append({"injection": injection.__dict__, "found": found} | breakdown)
    finally:
        testbed.down(NAME)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2))
    table = Table("delayed", "runs", "found", "what else was named")
    for kind in dict.fromkeys(row["injection"]["kind"] for row in rows):
        of_kind = [row for row in rows if row["injection"]["kind"] == kind]
        missed = [f"{row['limit']} {row['slow']}" for row in of_kind if not row["found"]]
        found_runs = str(sum(row["found"] for row in of_kind))
        table.add_row(kind, str(len(of_kind)), found_runs, "; ".join(missed))
    console.print(table)
    delayed = [row for row in rows if row["injection"]["where"] != "none"]
    share = sum(row["found"] for row in delayed) / len(delayed)
    met = "met" if share >= 0.95 else "NOT MET"
    console.print(f"{met}: found {share:.1%} of {len(delayed)} delays (target >= 95%)")


if __name__ == "__main__":
    main()
