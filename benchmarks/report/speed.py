"""How long a report takes of a run of a million steps, and of a thousand runs beside each other.

`python -m benchmarks.report.speed` writes event files as telemetry does, makes the pages, opens
them in Chromium and prints how long both took, and how large the pages are. Losses and times in
the files are drawn by chance; what is timed is real.
"""

import json
import math
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.common.output import argument_parser
from browser import CHROMIUM, browser
from paceline.observe.event_writer import EventWriter
from paceline.report.comparison.compared_runs import runs_in
from paceline.report.formats import Report, comparison_report, run_report, write
from paceline.specs import (
    Finished,
    Job,
    Layout,
    Plan,
    Run,
    Steps,
    Workers,
    WorkerState,
)
from report.folders import started

WINDOW_SECONDS = 0.5
BATCH = 64
BEGAN = 1_767_600_000.0


def make_run(parent: Path, name: str, steps: int, workers: int, step_seconds: float) -> Run:
    """A run's folder, as it is after the last step."""
    chance = random.Random(name)
    job = Job(
        name=name,
        train=Path("/home/ada/train.py"),
        nodes=workers,
        folder=Path("/home/ada"),
        python=Path("/usr/bin/python3"),
    )
    run = Run(parent / name)
    run.events.mkdir(parents=True)
    job.write(run.job_file)
    Plan(layout=Layout(replicas=workers)).write(run.plan_file)
    writers = [EventWriter(run.events, f"n{rank + 1}") for rank in range(workers)]
    for rank, writer in enumerate(writers):
        writer.write(started(rank, workers=workers, steps=steps, batch=BATCH, at=BEGAN))
    window, now = max(1, round(WINDOW_SECONDS / step_seconds)), BEGAN
    for first in range(1, steps + 1, window):
        count = min(window, steps + 1 - first)
        seconds = [step_seconds * (1 + abs(chance.gauss(0, 0.05))) for _ in range(count)]
        now += sum(seconds)
        falling = 1.4 + 3.1 * math.exp(-5 * first / steps)
        loss = [falling + chance.gauss(0, 0.08) for _ in range(count)]
        samples = [BATCH] * count
        writers[0].write(
            Steps(time=now, node="n1", first=first, loss=loss, seconds=seconds, samples=samples)
        )
        mean = sum(seconds) / count
        for rank, writer in enumerate(writers):
            state = WorkerState(
                rank=rank,
                step=first + count - 1,
                step_seconds=mean,
                parts={"forward": 0.3 * mean, "backward": 0.5 * mean, "communication": 0.2 * mean},
            )
            writer.write(Workers(time=now, node=f"n{rank + 1}", states=[state]))
    writers[0].write(
        Finished(
            time=now,
            node="n1",
            outcome="finished",
            steps=steps,
            samples=steps * BATCH,
            seconds=now - BEGAN,
        )
    )
    return run


def timed(name: str, folder: Path, report: Callable[[], Report]) -> dict[str, str | float | int]:
    """Make a page and open it; of the opening, the middle of three."""
    page = folder / f"{name.replace(' ', '-')}.html"
    begin = time.perf_counter()
    write(report(), "html", page)
    made = time.perf_counter() - begin
    opened = []
    if CHROMIUM is not None:
        with browser(folder) as chromium:
            for _ in range(3):
                chromium.show(page)
                opened.append(chromium.drawn_seconds())
                chromium.ask("Page.navigate", url="about:blank")
    return {
        "what": name,
        "made_seconds": made,
        "opened_seconds": sorted(opened)[1] if opened else math.nan,
        "page_bytes": page.stat().st_size,
    }


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the long run")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--step-seconds", type=float, default=0.05, help="of the long run")
    parser.add_argument("--runs", type=int, default=1000, help="to compare")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        long = make_run(folder / "long", "long", given.steps, given.workers, given.step_seconds)
        for number in range(given.runs):
            make_run(folder / "many", f"run-{number + 1}", 1000, 2, 0.05)
        rows = [
            timed(f"{given.steps:,} steps", folder, lambda: run_report(long)),
            timed(
                f"{given.runs:,} runs",
                folder,
                lambda: comparison_report(runs_in([folder / "many"])),
            ),
        ]
    if given.json:
        print(json.dumps({"workers": given.workers, "pages": rows}, indent=2))
        return
    print("| page of | made in | opened and drawn in | size |\n|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['what']} | {row['made_seconds']:.1f} s | {row['opened_seconds']:.2f} s"
            f" | {float(row['page_bytes']) / 1e6:.2f} MB |"
        )


if __name__ == "__main__":
    main()
