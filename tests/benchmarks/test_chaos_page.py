"""What came of the faults of `benchmarks/chaos`: figures of each kind, and the page of them."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.chaos.check.evidence import Evidence
from benchmarks.chaos.check.samples import Tally, tally
from benchmarks.chaos.page import _INVARIANTS, page
from benchmarks.chaos.results import Broken, Finished, Outcome, Results
from chaos_evidence import write_evidence

KILL = Outcome("ddp", 1, 0, "kill", ("members",), 0.1, 1)
RUN = Finished("ddp", 1, 21, 21, 60.0, "2026-11-01", samples=1000, wrong_samples=0)


def on_ddp() -> Results:
    others = [replace(KILL, number=n, seconds=n / 10) for n in range(1, 20)]
    went_on = replace(KILL, kind="pause", ways=(), seconds=0.5, steps_again=0)
    return Results("a machine", [RUN], [went_on, KILL, *others])


def on_canonical() -> Results:
    run = replace(RUN, setting="canonical", seed=2, faults=1, date="2026-11-03")
    restarted = replace(KILL, setting="canonical", seed=2, ways=("restart",), steps_again=7)
    return Results("a machine", [run], [restarted])


def test_figures_of_a_kind(tmp_path: Path) -> None:
    results = on_ddp()
    kill, pause = results.rows()
    assert (kill.kind, kill.times, kill.max_seconds) == ("kill", 20, 1.9)
    assert kill.p50_seconds == pytest.approx(0.95)
    assert (kill.p95_seconds, kill.mean_steps_again) == (1.9, 1)
    assert pause.ways == {"went on": 1}
    results.write(tmp_path / "found.json")
    assert Results.read(tmp_path / "found.json") == results


def test_samples_are_counted(tmp_path: Path) -> None:
    write_evidence(tmp_path)
    assert tally(Evidence(tmp_path)) == Tally(counted=20, wrong=0)
    for path in tmp_path.glob("runs/*/ledger/start-00001-*"):  # step 5, in the last epoch
        path.write_text(path.read_text().replace("[4, 5, 6, 7]", "[4, 5, 5, 7]"))
    assert tally(Evidence(tmp_path)) == Tally(counted=20, wrong=1)
    for path in tmp_path.glob("runs/*/ledger/start-00000-*"):
        path.write_text(path.read_text().replace("[0, 2]", "[2]"))
    assert tally(Evidence(tmp_path)) == Tally(counted=19, wrong=2)


def test_the_page_of_one_campaign() -> None:
    text = page(on_ddp())
    assert "| Faults | 21 in 1 runs, 1 minutes |" in text
    assert "| Invariants checked | 7 (" in text
    assert "**0 violated**" in text
    assert "| Samples trained | 1,000; 0 lost or duplicated |" in text
    assert "| Measured | 2026-11-01, a machine |" in text
    assert (
        "| a worker is killed (`kill`) | kill −9 | survivors continue with their own state | 20"
        " | 0.95 | 1.90 | 1.0 (1) | 0 |"
    ) in text
    assert "| ddp | 4 replicas, `--sync allreduce`, momentum | 21 | 1 | 0 |" in text


def test_several_campaigns_make_one_page() -> None:
    text = page(Results.merged([on_ddp(), on_canonical()]))
    assert "| Faults | 22 in 2 runs, 2 minutes |" in text
    assert "| Invariants checked | 15 (" in text
    assert "| Measured | 2026-11-01 to 2026-11-03, a machine |" in text
    assert "their own state (20×); the run restarts" in text
    assert (
        "| Fault | ddp | canonical |\n|---|--:|--:|\n| kill | 20 | 1 |\n| pause | 1 | 0 |" in text
    )
    assert "| canonical | 4 replicas, `--sync canonical:parts=4`, momentum | 1 | 2 | 0 |" in text


def test_the_page_lists_violations() -> None:
    results = on_ddp()
    for step in (3, 4):
        message = f"step {step} has 1 of 2 parts"
        results.broken.append(Broken("ddp", 1, "each sample once", message))
    results.runs[0] = replace(RUN, wrong_samples=2)
    text = page(results)
    assert "**1 violated**" in text
    assert "- each sample once (ddp, seed 1): step 3 has 1 of 2 parts, and 1 more" in text
    assert "| 1.0 (1) | 2 |" in text
    assert "1,000; 2 lost or duplicated" in text


def test_every_rule_of_the_checker_is_on_the_page() -> None:
    checks = Path(__file__).parents[2] / "benchmarks" / "chaos" / "check"
    rules = {
        line.split('"')[1]
        for path in checks.glob("*.py")
        for line in path.read_text().splitlines()
        if "RULE = " in line
    }
    assert rules == set(_INVARIANTS)


def test_a_page_from_files(tmp_path: Path) -> None:
    on_ddp().write(tmp_path / "a.json")
    on_canonical().write(tmp_path / "b.json")
    files = ["--from", str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    words = [*files, "--write", str(tmp_path / "page.md")]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", *words],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "22 faults in 2 runs" in done.stdout
    assert (tmp_path / "page.md").read_text() == page(Results.merged([on_ddp(), on_canonical()]))
