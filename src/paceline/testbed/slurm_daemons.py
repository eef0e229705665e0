"""The testbed's Slurm: its configuration, its daemons on the head, and the states of its nodes."""

import os
import socket
import subprocess
import time
from collections.abc import Callable

from paceline.specs.errors import PacelineError
from paceline.specs.owned_files import make_folder, open_owned, write_owned
from paceline.testbed.commands import run
from paceline.testbed.state_folder import StateFolder
from paceline.testbed.testbed_spec import HEAD, HEAD_ADDRESS, node_address, node_names

_SLOTS_PER_NODE = 8
_LEAST_MEMORY_MEGABYTES = 512
_CONTROLLER_PORT = 6817
_NODE_PORT = 6818
_START_SECONDS = 20.0
_GRACE_SECONDS = 30
"""Seconds between a preemption's warning and the end of the job."""


def write_settings(state: StateFolder, nodes: int) -> None:
    """Write slurm.conf and munge's key, and create the folders of the daemons."""
    for folder in ("controller", "spool"):
        make_folder(state.path / folder)
    write_owned(state.path / "munge.key", os.urandom(128))
    write_owned(state.slurm_conf, _settings(state, nodes, _machine_memory_megabytes()))


def start_controller(state: StateFolder) -> None:
    """Start munged and slurmctld on the head; return when slurmctld accepts connections."""
    path = state.path
    munged = [
        "munged",
        "--foreground",
        "--force",  # parent folders may have modes that munged rejects
        "--num-threads=2",
        f"--socket={state.munge_socket}",
        *(f"--{kind}-file={path / 'munge'}.{kind}" for kind in ("key", "pid", "seed")),
    ]
    _start_daemon(munged, state, is_ready=state.munge_socket.exists)
    _start_daemon(["slurmctld", "-D"], state, is_ready=_controller_listens)


def node_states() -> dict[str, str]:
    """Return Slurm's state of each node: idle, allocated, down, ...; * marks one that is silent."""
    lines = run(["sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T"])
    return dict(line.split() for line in lines.splitlines())


def mark_down(node: str) -> None:
    """Set a node down in Slurm, which may not have noticed; its next registration resets this."""
    run(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power was cut"])


def _settings(state: StateFolder, nodes: int, machine_megabytes: int) -> str:
    path = state.path
    node_megabytes = max(_LEAST_MEMORY_MEGABYTES, machine_megabytes // nodes)
    machines = "\n".join(
        f"NodeName={name} NodeAddr={node_address(name)} CPUs={_SLOTS_PER_NODE}"
        f" RealMemory={node_megabytes} State=UNKNOWN"
        for name in node_names(nodes)
    )
    partition = f"Nodes=ALL State=UP MaxMemPerNode={node_megabytes}"
    return f"""\
ClusterName=testbed
SlurmctldHost={HEAD}({HEAD_ADDRESS})
SlurmctldPort={_CONTROLLER_PORT}
SlurmdPort={_NODE_PORT}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={path / "controller"}
SlurmdSpoolDir={path / "spool"}/%n
SlurmctldPidFile={path / "slurmctld.pid"}
SlurmdPidFile={path}/%n.pid
SlurmctldSyslogDebug=quiet
SlurmdSyslogDebug=quiet

# cred_expire is also how long a requeued job waits before it starts again (120 s by default).
AuthType=auth/munge
AuthInfo=socket={state.munge_socket},cred_expire=10
MailProg=/bin/true
MpiDefault=none
SwitchType=switch/none
PropagateResourceLimits=NONE

# No cgroups: an ordinary user's namespace cannot create any.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none

# Use the slots and memory set below instead of what slurmd detects.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU={node_megabytes // _SLOTS_PER_NODE}

# Detect a power cut quickly, and use a returning node at once.
SlurmdTimeout=10
SlurmctldTimeout=10
MessageTimeout=5
InactiveLimit=0
KillWait=5
ReturnToService=2
JobRequeue=1
RequeueExit=75

# Jobs of the urgent partition preempt others, which are warned and requeued.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE

SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1

{machines}
PartitionName=main Default=YES MaxTime=1-00:00:00 GraceTime={_GRACE_SECONDS} {partition}
PartitionName=short Default=NO MaxTime=00:10:00 GraceTime={_GRACE_SECONDS} {partition}
PartitionName=urgent Default=NO MaxTime=00:10:00 PriorityTier=2 {partition}
"""


def _machine_memory_megabytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def _start_daemon(command: list[str], state: StateFolder, *, is_ready: Callable[[], bool]) -> None:
    program = command[0]
    with open_owned(state.log(program), "ab") as log:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    deadline = time.monotonic() + _START_SECONDS
    while not is_ready():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise PacelineError(
                f"{program} did not start", fix=f"see the last lines of {program}.log"
            )
        time.sleep(0.01)


def _controller_listens() -> bool:
    try:
        socket.create_connection((HEAD_ADDRESS, _CONTROLLER_PORT), timeout=1).close()
    except OSError:
        return False
    return True
