"""What a run under a real Slurm does when nodes are lost: power cuts and a cut through the switch.

On a testbed of eight nodes with paced devices (they wait instead of computing; links, exchanges and
Slurm are real). In the middle of each run a fault:

- `spare`: power cut of a node, with another one standing by
- `smaller`: power cut of a node, without
- `partition`: three nodes lose the other five, and Slurm's controller
- `coordinator`: power cut of the first node: it leads, and has the batch script
- `coordinator-cut-off`: the first three nodes lose the other five, and live

Before a power cut the link goes down, so that no dying kernel tells the others. For each run:
seconds from the fault to the next step that is done, steps taken again, samples missing or twice,
and how the run and its job ended. The page of each run is left in its folder.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.common.output import argument_parser
from benchmarks.common.partition import cut_off
from paceline import testbed
from paceline.checkpoints.ledger import read_ledger
from paceline.report import RunReader
from paceline.report.run.goodput import goodput_figures
from paceline.specs import Run
from paceline.testbed.testbed_spec import TestbedSpec

TRAIN = Path(__file__).parent / "slurm_train.py"
BOX, NODES = "cluster-faults-bench", 8
STRUCK_AT = 60
_LIMIT_SECONDS = 300.0


@dataclass(frozen=True)
class Scenario:
    """A fault, and the nodes that it takes away."""

    lost: tuple[str, ...]
    power: bool
    spares: int = 0


SCENARIOS = {
    "spare": Scenario(("n4",), power=True, spares=1),
    "smaller": Scenario(("n4",), power=True),
    "partition": Scenario(("n6", "n7", "n8"), power=False),
    "coordinator": Scenario(("n1",), power=True),
    "coordinator-cut-off": Scenario(("n1", "n2", "n3"), power=False),
}


@dataclass(frozen=True)
class Found:
    """What became of one run."""

    scenario: str
    workers: str
    seconds_to_next_step: float
    steps_again: int
    samples_missing_or_twice: int
    exit_code: int
    job_ended: bool
    goodput: float


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--only", nargs="*", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    found = []
    for name in asked.only:
        testbed.up(TestbedSpec(name=BOX, nodes=NODES, link="1gbit"))
        try:
            found.append(_tried(name, asked.out.absolute() / name, asked.steps))
        finally:
            testbed.down(BOX)
        _show(found[-1:])
    _show(found)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
    sys.exit(not all(_went_well(each) for each in found))


def _tried(name: str, folder: Path, steps: int) -> Found:
    scenario = SCENARIOS[name]
    folder.mkdir(parents=True)
    words = ["--nodes", str(NODES - scenario.spares), "--spares", str(scenario.spares)]
    command = [
        sys.executable,
        "-m",
        "paceline",
        "submit",
        f"{TRAIN}:loop",
        *words,
        "--testbed",
        BOX,
    ]
    options = ["--ledger", "--runs", str(folder), "--wait", "--quiet", "--assume-shared"]
    process = subprocess.Popen([*command, *options], env=os.environ | {"STEPS": str(steps)})
    _until(lambda: _newest_step(folder) > STRUCK_AT, process)
    struck_at = time.time()
    if scenario.power:
        for node in scenario.lost:
            testbed.link(BOX, node, down=True)
            testbed.stop(BOX, node)
    else:
        cut_off(BOX, scenario.lost)
    code = process.wait(_LIMIT_SECONDS)
    (path,) = (each for each in folder.iterdir() if (each / "job.toml").exists())
    run = Run.open(path)
    ended = _ends(run.job_id_file.read_text())
    page = ["report", str(path), "--quiet", "-o", str(path / "report.html")]
    subprocess.run([sys.executable, "-m", "paceline", *page], check=True)
    return _found(name, run, scenario, struck_at, code, ended=ended)


def _found(
    name: str, run: Run, scenario: Scenario, struck_at: float, code: int, *, ended: bool
) -> Found:
    state = RunReader(run).refresh()
    first = state.regroups[0]
    lost = set(scenario.lost)
    files = [path for path in run.path.glob("steps-*") if path.name.split("-")[1] not in lost]
    times = [float(line.split()[1]) for path in files for line in path.read_text().splitlines()]
    # The last exchange before the fault may be done when the fault is already there.
    later = [at for at in times if at > first.time]
    *whole, last = read_ledger(run.ledger)
    wrong = sum(epoch.missing + len(epoch.repeated) for epoch in whole) + len(last.repeated)
    return Found(
        scenario=name,
        workers=f"{run.job.workers} -> {first.workers}",
        seconds_to_next_step=min(later) - struck_at,
        steps_again=first.steps_again,
        samples_missing_or_twice=wrong,
        exit_code=code,
        job_ended=ended,
        goodput=goodput_figures(state).share or 0.0,
    )


def _newest_step(folder: Path) -> int:
    lines = [path.read_text().splitlines() for path in folder.glob("*/steps-*")]
    return max((int(each[-1].split()[0]) for each in lines if each), default=0)


def _ends(job_id: str) -> bool:
    """Whether the job gives its nodes back; Slurm waits for a minute for those that are gone."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if testbed.scheduler(BOX).state(job_id).is_over:
            return True
        time.sleep(1)
    return False


def _until(done: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not done():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the run ended before the fault, with {process.poll()}")
        time.sleep(0.05)


def _went_well(each: Found) -> bool:
    return each.exit_code == 0 and each.samples_missing_or_twice == 0 and each.job_ended


def _show(found: list[Found]) -> None:
    table = Table(title="Runs under Slurm that lost nodes (emulated devices, real links)")
    for heading in (
        "fault",
        "workers",
        "next step after",
        "steps again",
        "samples wrong",
        "goodput",
        "end",
    ):
        table.add_column(heading)
    for each in found:
        end = f"exit code {each.exit_code}, job {'over' if each.job_ended else 'NOT over'}"
        table.add_row(
            each.scenario,
            each.workers,
            f"{each.seconds_to_next_step:.2f} s",
            str(each.steps_again),
            str(each.samples_missing_or_twice),
            f"{each.goodput:.1%}",
            end,
        )
    Console().print(table)


if __name__ == "__main__":
    main()
