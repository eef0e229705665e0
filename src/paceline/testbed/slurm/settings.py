"""The configuration files of the testbed's Slurm."""

import os

from paceline.specs.owned_files import make_folder, write_owned
from paceline.testbed.state_folder import StateFolder
from paceline.testbed.testbed_spec import (
    HEAD,
    HEAD_ADDRESS,
    TestbedSpec,
    node_address,
    node_names,
)

CONTROLLER_PORT = 6817
ACCOUNTING_PORT = 6819
CLUSTER = "testbed"
GRACE_SECONDS = 30
"""Seconds between a preemption's warning and the end of the job."""

_SLOTS_PER_NODE = 8
_LEAST_MEMORY_MEGABYTES = 512
_NODE_PORT = 6818

# Jobs of the urgent partition preempt others, which are warned and requeued.
_WITHOUT_ACCOUNTING = """\
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
"""


def write_settings(state: StateFolder, asked: TestbedSpec) -> None:
    """Write Slurm's files and munge's key, and create the folders of the daemons."""
    for folder in ("controller", "spool"):
        make_folder(state.path / folder)
    write_owned(state.path / "munge.key", os.urandom(128))
    write_owned(state.slurm_conf, _settings(state, asked, _machine_memory_megabytes()))
    write_owned(state.path / "gres.conf", "Name=fpga Count=2\n")
    if asked.accounting:
        write_owned(state.path / "slurmdbd.conf", _accounting_settings(state))


def _settings(state: StateFolder, asked: TestbedSpec, machine_megabytes: int) -> str:
    path = state.path
    node_megabytes = max(_LEAST_MEMORY_MEGABYTES, machine_megabytes // asked.nodes)
    machines = "\n".join(
        f"NodeName={name} NodeAddr={node_address(name)} CPUs={_SLOTS_PER_NODE}"
        f" RealMemory={node_megabytes} Feature={'odd' if number % 2 else 'even'} Gres=fpga:2"
        " State=UNKNOWN"
        for number, name in enumerate(node_names(asked.nodes), start=1)
    )
    partition = f"Nodes=ALL State=UP MaxMemPerNode={node_megabytes}"
    return f"""\
ClusterName={CLUSTER}
SlurmctldHost={HEAD}({HEAD_ADDRESS})
SlurmctldPort={CONTROLLER_PORT}
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

{_with_accounting(state) if asked.accounting else _WITHOUT_ACCOUNTING}
PreemptMode=REQUEUE

SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1

# Resources without devices, so that jobs can ask for them.
GresTypes=fpga
Licenses=compiler:2

{machines}
PartitionName=main Default=YES MaxTime=1-00:00:00 GraceTime={GRACE_SECONDS} {partition}
PartitionName=short Default=NO MaxTime=00:10:00 GraceTime={GRACE_SECONDS} {partition}
PartitionName=urgent Default=NO MaxTime=00:10:00 PriorityTier=2 {partition}
"""


def _with_accounting(state: StateFolder) -> str:
    return f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={HEAD}
AccountingStoragePort={ACCOUNTING_PORT}
AccountingStoragePass={state.munge_socket}
AccountingStorageEnforce=associations,limits,qos
PreemptType=preempt/qos
"""


def _accounting_settings(state: StateFolder) -> str:
    """Return slurmdbd.conf; MariaDB's socket accepts root alone."""
    return f"""\
DbdHost={HEAD}
DbdAddr={HEAD_ADDRESS}
DbdPort={ACCOUNTING_PORT}
SlurmUser=root
PidFile={state.path / "slurmdbd.pid"}
AuthType=auth/munge
AuthInfo=socket={state.munge_socket}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


def _machine_memory_megabytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
