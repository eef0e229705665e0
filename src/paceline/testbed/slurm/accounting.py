"""Slurm's accounting in a testbed: slurmdbd with MariaDB, and a small site's accounts and QOS."""

from paceline.specs.owned_files import make_folder
from paceline.testbed.commands import run
from paceline.testbed.slurm.daemons import listens, start_daemon
from paceline.testbed.slurm.settings import ACCOUNTING_PORT, CLUSTER, GRACE_SECONDS
from paceline.testbed.state_folder import StateFolder

_SITE = (
    # normal preempts scavenge, whose jobs are warned and requeued
    f"add qos scavenge Priority=0 PreemptMode=requeue GraceTime={GRACE_SECONDS}",
    "add qos debug Priority=100 MaxTRESPerJob=node=2 MaxWall=00:10:00",
    "modify qos normal set Priority=10 Preempt=scavenge",
    f"add cluster {CLUSTER}",
    "add account physics MaxTRES=node=3 QOS=normal,debug DefaultQOS=normal",
    "add account biology MaxWall=01:00:00 GrpTRES=node=2 QOS=scavenge DefaultQOS=scavenge",
    "add user root Account=physics",
    "add user root Account=biology",
    "modify user root set DefaultAccount=physics",
    # Slurm gives root an account of its own, without limits.
    "delete user root where Account=root",
)
"""What an administrator of the site tells `sacctmgr`; in a testbed, root is its only user."""
_SMALL = ("--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M")
_MOST_MEGABYTES = 512


def start_accounting(state: StateFolder) -> None:
    """Start MariaDB and slurmdbd on the head, and create the accounts."""
    data, database_socket = state.path / "database", state.path / "database.sock"
    make_folder(data)
    # In memory: on a disk, waiting for each write took three quarters of the start.
    run(["mount", "-t", "tmpfs", "-o", f"mode=700,size={_MOST_MEGABYTES}m", "tmpfs", str(data)])
    own = ("--no-defaults", f"--datadir={data}", "--user=root", *_SMALL)
    as_root = ("--auth-root-authentication-method=socket", "--auth-root-socket-user=root")
    run(["mariadb-install-db", *own, "--skip-test-db", *as_root])
    start_daemon(
        [
            *("mariadbd", *own, "--skip-networking", f"--socket={database_socket}"),
            f"--pid-file={state.path / 'database.pid'}",
        ],
        state,
        is_ready=database_socket.exists,
    )
    start_daemon(
        ["slurmdbd", "-D"],
        state,
        is_ready=lambda: listens(ACCOUNTING_PORT),
        environment={"MYSQL_UNIX_PORT": str(database_socket)},
    )
    for words in _SITE:
        run(["sacctmgr", "--immediate", *words.split()])
