"""The frameworks, the settings, and one run of each job.

Another framework's workers are forked from a process that has imported it, and find each other by
the variables that torchrun sets. So a run takes a second instead of a minute on a busy machine.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from benchmarks.common.processes import ROOT, Failed, environment, start, wait_for_all

JOBS = Path(__file__).parent / "jobs"
WORKERS = 3
CASES = ("resnet", "clip", "gan", "translation", "experts")
RUN_SECONDS = 240


@dataclass(frozen=True)
class Way:
    """A framework, or the plain loop."""

    name: str
    script: str
    peer: str | None = None
    """What is installed for it; None for what Paceline itself needs."""
    module: str = "torch"
    """What its workers import."""
    workers: int = WORKERS
    reordered: bool = False
    """Whether the samples of each batch are in another order than the others'."""


PLAIN = Way("plain loop", "plain.py", workers=1)
NULL = Way("null", "plain.py", workers=1, reordered=True)
"""The plain loop again, with other rounding: how far apart equal trainings may be."""
PACELINE = Way("Paceline", "with_paceline.py")
PEERS = (
    Way("Accelerate", "with_accelerate.py", "accelerate", "accelerate"),
    Way("Fabric", "with_fabric.py", "lightning", "lightning.fabric"),
    Way("Lightning", "with_trainer.py", "lightning", "lightning"),
)
WAYS = (NULL, PACELINE, *PEERS)


@dataclass(frozen=True)
class Setting:
    """A global batch and a number of samples."""

    batch: int
    samples: int
    title: str

    def __str__(self) -> str:
        return f"{self.batch}-{self.samples}"

    def variables(self, output: Path) -> dict[str, str]:
        """Return the variables that a job reads."""
        return {
            "CORRECTNESS_BATCH": str(self.batch),
            "CORRECTNESS_SAMPLES": str(self.samples),
            "CORRECTNESS_OUTPUT": str(output),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }


SETTINGS = (
    Setting(15, 150, "15 of 150: all batches divide"),
    Setting(15, 203, "15 of 203: an epoch's last 8 do not"),
    Setting(16, 203, "16 of 203: no batch divides"),
)


@dataclass(frozen=True)
class Trained:
    """What a run trained."""

    weights: dict[str, Tensor]
    figures: dict[str, float]
    """The number of steps; the accuracy that it reports, where it validates."""


def folder_of(output: Path, way: Way, case: str, setting: Setting) -> Path:
    """Return the folder of one run, which exists."""
    folder = output / way.name / case / str(setting)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_forked(way: Way, output: Path, python: Path | None = None) -> None:
    """Run all cases and settings of a way that have not run."""
    words = [
        python or sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.frameworks.correctness.forked",
        way.name,
        output,
    ]
    subprocess.run([str(word) for word in words], cwd=ROOT, env=environment(), check=True)


def run_paceline(case: str, setting: Setting, output: Path) -> None:
    """Run a case as its users do, unless it has run."""
    folder = folder_of(output, PACELINE, case, setting)
    if (folder / "figures.json").exists():
        return
    launcher = ("-m", "paceline", "run", "-n", WORKERS, "--batch-norm", "synchronized")
    script = f"{JOBS / case / PACELINE.script}:recorded"
    log = folder / "log"
    process = start((sys.executable, *launcher, script), log, setting.variables(folder), folder)
    wait_for_all([process], log, RUN_SECONDS)


def trained(way: Way, case: str, setting: Setting, output: Path) -> Trained:
    """Read what a run trained; raises `Failed` if it did not end."""
    folder = folder_of(output, way, case, setting)
    if not (folder / "figures.json").exists():
        lines = (folder / "log").read_text(errors="replace").splitlines()
        raise Failed(f"{way.name}, {case}: {lines[-1] if lines else 'no output'}")
    weights = load_file(folder / "weights.safetensors")
    return Trained(weights, json.loads((folder / "figures.json").read_text()))


def machine() -> str:
    """Return the processor and the number of cores."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores of {names[0] if names else 'an unknown processor'}"
