"""The frameworks, how their users start each of them, and one run."""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.processes import Failed, free_ports, start, wait_for_all

JOBS = Path(__file__).parent / "jobs"
WORKERS = 2
RUN_SECONDS = 600
"""A run that takes longer hangs."""


@dataclass(frozen=True)
class Way:
    """A framework as its users start it."""

    name: str
    script: str
    starter: str
    """Which of the functions below makes its command."""
    peer: str | None = None
    """What is installed for it; None for what Paceline itself needs."""
    words: tuple[str, ...] = ()
    base: str = "DDP"
    """The way that it is compared with."""


WAYS = {
    way.name: way
    for way in (
        Way("DDP", "ddp.py", "torchrun"),
        Way("Paceline", "with_paceline.py", "paceline run"),
        Way("Accelerate", "with_accelerate.py", "torchrun", "accelerate"),
        Way("Fabric", "with_fabric.py", "python", "lightning"),
        Way("Lightning Trainer", "with_trainer.py", "python", "lightning"),
        Way("DeepSpeed ZeRO-0", "with_deepspeed.py", "deepspeed", "deepspeed", ("0",)),
        Way("DeepSpeed ZeRO-1", "with_deepspeed.py", "deepspeed", "deepspeed", ("1",)),
        Way("Ray Train", "with_ray.py", "python", "ray"),
        Way("Horovod (patched)", "with_horovod.py", "horovodrun", "horovod"),
        Way("DDP, MLP", "ddp_mlp.py", "torchrun", base="DDP, MLP"),
        Way("TensorFlow, MLP", "with_tensorflow.py", "TF_CONFIG", "tensorflow", base="DDP, MLP"),
    )
}
BASES = tuple(dict.fromkeys(way.base for way in WAYS.values()))


@dataclass(frozen=True)
class Measured:
    """One run, over its workers."""

    startup_seconds: float
    """From typing the command to the end of the first step."""
    steps_per_second: float
    """After the first steps."""
    final_loss: float
    """Mean over the last steps and the workers."""
    peak_bytes: int
    """The most resident memory of the worker that had most."""


def run_once(way: Way, python: Path, steps: int) -> Measured:
    """Train once, in a folder of its own."""
    # A short name: sockets that Ray makes in it may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="fw-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        log = folder / "log"
        (folder / "output").mkdir()
        begin = time.time()
        workers = _tensorflow_workers() if way.starter == "TF_CONFIG" else [{}]
        command, variables = _command(way, python, folder), _environment(python, folder, steps)
        processes = [start(command, log, variables | each, folder) for each in workers]
        wait_for_all(processes, log, RUN_SECONDS)
        lines = [json.loads(path.read_text()) for path in (folder / "output").iterdir()]
        if len(lines) != WORKERS:
            raise Failed(f"{len(lines)} of {WORKERS} workers trained")
    return Measured(
        startup_seconds=max(line["first_step_ended"] for line in lines) - begin,
        steps_per_second=lines[0]["steps"] / statistics.mean(line["seconds"] for line in lines),
        final_loss=statistics.mean(line["final_loss"] for line in lines),
        peak_bytes=max(line["peak_bytes"] for line in lines),
    )


def _command(way: Way, python: Path, folder: Path) -> list[str]:
    beside = python.parent
    starters: dict[str, Sequence[object]] = {
        "torchrun": (
            *(python, "-m", "torch.distributed.run", "--standalone"),
            f"--nproc-per-node={WORKERS}",
        ),
        "paceline run": (python, "-m", "paceline", "run", "-n", WORKERS, "--runs", folder / "runs"),
        "python": (python,),
        "TF_CONFIG": (python,),
        "deepspeed": (
            *(python, beside / "deepspeed", "--num_accelerators", WORKERS),
            *("--master_port", *free_ports(1)),
        ),
        "horovodrun": (python, beside / "horovodrun", "-np", WORKERS, "--gloo", python),
    }
    return [str(word) for word in (*starters[way.starter], JOBS / way.script, *way.words)]


def _environment(python: Path, folder: Path, steps: int) -> dict[str, str]:
    """One thread for each worker, and traffic on the loopback only."""
    return {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "FRAMEWORKS_STEPS": str(steps),
        "FRAMEWORKS_OUTPUT": str(folder / "output"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HOROVOD_GLOO_IFACE": "lo",
        # TensorFlow's collectives need a second thread beside the one that computes.
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TORCH_EXTENSIONS_DIR": str(python.parents[1] / "extensions"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(folder),
        "HOME": str(folder),
    }


def _tensorflow_workers() -> Iterator[dict[str, str]]:
    """Yield the variables of each TensorFlow worker, which name its peers."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(WORKERS)]}
    for index in range(WORKERS):
        task = {"type": "worker", "index": index}
        yield {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
