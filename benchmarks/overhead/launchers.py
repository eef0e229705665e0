"""The ways to start the training: `paceline run`, a bare script, torchrun."""

import json
import sys
import time
from pathlib import Path

from benchmarks.common.processes import free_ports, start, wait_for_all
from benchmarks.common.runs import LIMIT_SECONDS, Measured, paceline_run

HERE = Path(__file__).parent
TRAINING = HERE.parent / "common" / "gpt_training.py"
WORKERS = 2
LAYOUT_OPTIONS = {"pipeline": ("--micro-batch", 8, "--schedule", "1f1b")}


def under_paceline(folder: Path, layout: str = "replicas") -> Measured:
    """Run it by `paceline run`, with two workers in the given layout."""
    layout_options = [f"--{layout}", WORKERS, *LAYOUT_OPTIONS.get(layout, ())]
    return paceline_run([TRAINING, *layout_options], folder)


def bare(folder: Path, layout: str = "replicas", script: str = "bare.py") -> Measured:
    """Start the two processes of a script directly."""
    output, log = folder / "bare.json", folder / "stderr"
    (port,) = free_ports(1)
    sizes = {"WORLD_SIZE": WORKERS, "LOCAL_WORLD_SIZE": WORKERS}
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1} | sizes
    begin = time.time()
    ranks = [
        start(
            [sys.executable, HERE / script, output, layout],
            log,
            common | {"RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in range(WORKERS)
    ]
    wait_for_all(ranks, log, LIMIT_SECONDS)
    return _read(begin, output)


def under_torchrun(folder: Path) -> Measured:
    """Start the bare script by torchrun."""
    output, log = folder / "torchrun.json", folder / "stderr"
    begin = time.time()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words = [f"--nproc-per-node={WORKERS}", HERE / "bare.py", output, "replicas"]
    wait_for_all([start([*command, *words], log, {"OMP_NUM_THREADS": 1})], log, LIMIT_SECONDS)
    return _read(begin, output)


def _read(begin: float, output: Path) -> Measured:
    written = json.loads(output.read_text())
    return Measured.of(begin, written["first_step"], written["seconds"])
