"""The job on the testbed, from outside: brings it up, sets the links, asks for runs."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.common.processes import environment
from benchmarks.sync.time_to_loss.candidates import Trial
from benchmarks.sync.time_to_loss.results import Result, Setting, result_of
from paceline.testbed import client
from paceline.testbed.testbed_spec import TestbedSpec, delay_seconds, node_names

WORKER = "benchmarks.sync.time_to_loss.worker"
NAME = "loss-box"
MOST_DELAY = 0.5
"""Of DDP's communication, that may be for the links' delay."""


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    protocol: str
    ranks: int
    ratios: tuple[float, ...]
    seeds: int
    model: str
    target: float
    delay: str
    step_seconds: float
    most_seconds: float
    candidates: tuple[str, ...]
    """Where they are named; else all that can run here."""
    tuned: list[dict[str, Any]]
    peers: Path | None

    @property
    def padded_seconds(self) -> float | None:
        """What steps are slept out to, if they are."""
        return self.step_seconds if self.protocol == "B" else None


class Ranks:
    """The job on the testbed."""

    def __init__(self, options: Options, folder: Path, process: "subprocess.Popen[str]") -> None:
        self._options, self._folder, self._process = options, folder, process
        self._phases = 0
        said = self._wait_for("compute.json")[0]
        measured: float = said["seconds"]
        self.compute_seconds = options.padded_seconds or measured
        self._parameter_bytes: int = said["parameter_bytes"]
        if options.padded_seconds and measured > options.padded_seconds:
            raise SystemExit(
                f"a step takes {measured:.3f} s by itself, more than the {options.padded_seconds} s"
                " that it is to be padded to: give a longer --step-seconds"
            )

    def link(self, ratio: float) -> Setting:
        """Set the links for a ratio; 0 leaves them as fast as the machine is."""
        options, words = self._options, "unshaped"
        if ratio:
            seconds = ratio * self.compute_seconds
            rounds, delay = 2 * (options.ranks - 1), options.delay
            waiting = rounds * 2 * delay_seconds(delay)  # out by one link, in by another
            if waiting > MOST_DELAY * seconds:
                waiting, delay = 0.0, "0"
            ring_bytes = rounds / options.ranks * self._parameter_bytes
            rate = round(8 * ring_bytes / (seconds - waiting))
            for node in node_names(options.ranks):
                client.link(NAME, node, rate=f"{rate}bit", delay=delay)
            words = f"links of {rate / 1e6:.3g} Mbit/s, delay {delay} each way"
        return Setting(
            protocol=options.protocol,
            ratio=ratio,
            ranks=options.ranks,
            model=options.model,
            link=words,
            compute_seconds=self.compute_seconds,
        )

    def run(self, wanted: Sequence[tuple[str, int, Trial, float]], words: str) -> list[Result]:
        """Run candidates with seeds, trials and the most seconds that each may take."""
        options = self._options
        runs = [
            {
                "candidate": candidate,
                "seed": seed,
                "trial": asdict(trial),
                "target": options.target,
                "most_seconds": most_seconds,
            }
            for candidate, seed, trial, most_seconds in wanted
        ]
        self._ask(runs)
        name = f"results-{self._phases - 1}.jsonl"
        results = []
        for number in track(range(len(runs)), words, console=Console(stderr=True)):
            results.append(result_of(self._wait_for(name, lines=number + 1)[number]))
        return results

    def end(self) -> None:
        """Nothing more is asked for."""
        self._ask([])
        self._process.wait(60)

    def _ask(self, runs: list[dict[str, Any]]) -> None:
        draft = self._folder / "phase.draft"
        draft.write_text(json.dumps(runs))
        draft.rename(self._folder / f"phase-{self._phases}.json")
        self._phases += 1

    def _wait_for(self, name: str, lines: int = 1) -> list[Any]:
        path = self._folder / name
        while True:
            said = path.read_text() if path.exists() else ""
            if said.count("\n") >= lines:
                return [json.loads(line) for line in said.splitlines()[:lines]]
            if self._process.poll() is not None:
                log = (self._folder / "log").read_text()
                raise SystemExit(f"the job ended early:\n{log[-3000:]}")
            time.sleep(0.05)


@contextmanager
def started(options: Options) -> Iterator[Ranks]:
    """A testbed with the ranks up in it, taken down afterwards."""
    client.up(TestbedSpec(name=NAME, nodes=options.ranks))
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            job = {
                "model": options.model,
                "padded_seconds": options.padded_seconds,
            }
            (folder / "job.json").write_text(json.dumps(job))
            variables = environment(client.environment(NAME) | {"OMP_NUM_THREADS": "1"})
            if options.peers:
                variables["PYTHONPATH"] += f"{os.pathsep}{options.peers}"
            with (folder / "log").open("w") as log:
                process = subprocess.Popen(
                    [
                        *client.command_prefix(NAME),
                        *("srun", f"--nodes={options.ranks}", "--ntasks-per-node=1"),
                        *("--kill-on-bad-exit=1", "--label"),
                        *(sys.executable, "-m", WORKER, str(folder)),
                    ],
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            try:
                ranks = Ranks(options, folder, process)
                yield ranks
                ranks.end()
            finally:
                process.terminate()
                process.wait(30)
    finally:
        client.down(NAME)
