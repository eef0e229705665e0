"""The ways to train the job through faults, and how each is started."""

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.common.processes import environment, free_ports
from benchmarks.recovery.history import History
from benchmarks.recovery.nodes import HEAD_ADDRESS, Nodes
from benchmarks.recovery.sizes import WORKERS
from paceline.specs import Faults, Job, Layout, Plan, Run, Saving

HERE = Path(__file__).parent
_RESTARTS = 1000
_SUPERVISE = """
import sys
from pathlib import Path
from paceline.jobs.local_run import train_here
from paceline.jobs.run_lease import lease_held
from paceline.specs import Run
run = Run.open(Path(sys.argv[1]))
with lease_held(run) as lease:
    train_here(run, lease)
"""
_STORE_PORT = 29400
"""Inside the nodes."""


@dataclass(frozen=True)
class Settings:
    """What is the same for all ways."""

    step_seconds: float
    peer_timeout_seconds: float
    """After which torchrun's and torchft's collectives give up; Paceline has a lease."""
    torchft_python: Path | None


@dataclass
class Started:
    """A run of the job, in a folder of its own, on this machine or on nodes."""

    folder: Path
    settings: Settings
    nodes: Nodes | None
    replace: Callable[[int], None] | None = None
    """Starts a lost worker again, where the way leaves that to others."""
    _processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def history(self) -> Path:
        """Where workers write theirs."""
        return self.folder / "history"

    def read(self) -> History:
        """What they have written so far."""
        ledger = next(iter(self.folder.glob("runs/*/ledger")), None)
        return History.read(self.history, ledger)

    @property
    def log(self) -> Path:
        """What everybody said."""
        return self.folder / "log"

    def address(self, node: int) -> str:
        """Where a node is reached."""
        return self.nodes.address(node) if self.nodes else "127.0.0.1"

    def start(
        self, command: list[object], node: int | None = None, variables: Mapping[str, str] = {}
    ) -> None:
        """Start a process in a node; on the head, or this machine, without one."""
        own = {
            "RECOVERY_HISTORY": self.history,
            "RECOVERY_STEP_SECONDS": self.settings.step_seconds,
            "RECOVERY_PEER_TIMEOUT_SECONDS": self.settings.peer_timeout_seconds,
            "GLOO_SOCKET_IFNAME": "eth0" if self.nodes else "lo",
            "OMP_NUM_THREADS": 1,
            **variables,
        }
        led = self.nodes.inside(node) if self.nodes else []
        with self.log.open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [*led, *(str(word) for word in command)],
                    cwd=self.folder,
                    env=environment(own),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def end(self) -> None:
        """Kill whatever was started, which is known by the folder in its environment."""
        while left := [each for each in psutil.process_iter() if self._is_ours(each)]:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            for child in self._processes:
                child.wait()

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return (
                process.environ().get("RECOVERY_HISTORY") == str(self.history)
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False


def paceline(run: Started, spares: int = 0) -> None:
    """The supervisor of `paceline run`; on nodes one worker each, told where it stands as srun
    tells it."""
    on_nodes = run.nodes is not None
    job = Job(
        name="recovery",
        train=HERE / "with_paceline.py",
        nodes=WORKERS if on_nodes else 1,
        devices_per_node=1 if on_nodes else WORKERS,
        spares=spares,
        folder=run.folder,
        python=Path(sys.executable),
    )
    plan = Plan(
        layout=Layout(replicas=WORKERS),
        saving=Saving(every_steps=0, ledger=True),
        faults=Faults(attempts=_RESTARTS),
    )
    made = Run.create(run.folder / "runs", job, plan)
    if not on_nodes:
        run.start([sys.executable, "-c", _SUPERVISE, made.path])
        return
    for node in range(WORKERS):
        run.start(
            [sys.executable, "-m", "paceline.train", made.path],
            node,
            {
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": str(node),
                "SLURM_NTASKS": str(WORKERS),
                "SLURM_LOCALID": "0",
                "SLURM_NNODES": str(WORKERS),
                "SLURMD_NODENAME": f"node{node}",
            },
        )


def paceline_with_spare(run: Started) -> None:
    """The same, with a worker that stands by; only where all are on this machine."""
    paceline(run, spares=1)


def torchrun(run: Started, variables: Mapping[str, str] = {}) -> None:
    """An agent on this machine, or one on each node; they start all workers again."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--max-restarts={_RESTARTS}"]
    script = HERE / "with_torchrun.py"
    if run.nodes is None:
        run.start(
            [*command, "--standalone", f"--nproc-per-node={WORKERS}", script], variables=variables
        )
        return
    for node in range(WORKERS):
        where = [
            *(f"--nnodes=1:{WORKERS}", "--nproc-per-node=1", "--rdzv-backend=c10d"),
            *(f"--rdzv-endpoint={run.address(0)}:{_STORE_PORT}", "--rdzv-id=recovery"),
            # Its way to find that out asks for the host's name, which all nodes share here.
            *(f"--rdzv-conf=is_host={int(node == 0)}", f"--local-addr={run.address(node)}"),
        ]
        run.start([*command, *where, script], node, variables)


def torchrun_own_store(run: Started) -> None:
    """The same, with a new store for each start of the workers."""
    torchrun(run, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})


def torchft(run: Started) -> None:
    """A lighthouse on the head, and a replica on each node; who is lost is started again here."""
    python = run.settings.torchft_python
    assert python is not None
    head = f"{HEAD_ADDRESS if run.nodes else '127.0.0.1'}:{free_ports(1)[0]}"
    run.start(
        [
            *(python.parent / "torchft_lighthouse", f"--bind={head}"),
            *("--min_replicas=1", "--quorum_tick_ms=100", "--join_timeout_ms=100"),
            "--heartbeat_timeout_ms=1000",
        ]
    )

    def start(replica: int) -> None:
        run.start(
            [python, HERE / "with_torchft.py"],
            replica,
            {
                "RECOVERY_REPLICA": str(replica),
                "RECOVERY_ADDRESS": run.address(replica),
                "TORCHFT_LIGHTHOUSE": f"http://{head}",
            },
        )

    run.replace = start
    for replica in range(WORKERS):
        start(replica)


WAYS: dict[str, Callable[[Started], None]] = {
    "Paceline": paceline,
    "Paceline, a spare": paceline_with_spare,
    "torchrun": torchrun,
    "torchrun, own store": torchrun_own_store,
    "torchft": torchft,
}
