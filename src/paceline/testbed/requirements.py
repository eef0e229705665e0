"""A machine's requirements for a testbed, and fixes for missing ones."""

import getpass
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from paceline.specs.errors import PacelineError
from paceline.testbed.commands import namespace_options, search_path

_ETC = Path("/etc")
_SYSCTLS = Path("/proc/sys")
_TRIAL_SECONDS = 15
_FIRST_SUB_ID = 100_000
_SUB_IDS = 65_536

# program: (Debian and Ubuntu package, Fedora and RHEL package)
_PROGRAMS = {
    "unshare": ("util-linux", "util-linux"),
    "nsenter": ("util-linux", "util-linux"),
    "setsid": ("util-linux", "util-linux"),
    "setpriv": ("util-linux", "util-linux"),
    "taskset": ("util-linux", "util-linux"),
    "mount": ("mount", "util-linux"),
    "ip": ("iproute2", "iproute"),
    "tc": ("iproute2", "iproute-tc"),
    "munged": ("munge", "munge"),
    "slurmctld": ("slurmctld", "slurm-slurmctld"),
    "slurmd": ("slurmd", "slurm-slurmd"),
    "sinfo": ("slurm-client", "slurm"),
    "scontrol": ("slurm-client", "slurm"),
}
_ACCOUNTING_PROGRAMS = {
    "slurmdbd": ("slurmdbd", "slurm-slurmdbd"),
    "sacctmgr": ("slurm-client", "slurm"),
    "mariadbd": ("mariadb-server", "mariadb-server"),
    "mariadb-install-db": ("mariadb-server", "mariadb-server"),
}
_ROOTLESS_PROGRAMS = {
    "newuidmap": ("uidmap", "shadow-utils"),
    "newgidmap": ("uidmap", "shadow-utils"),
}

# kernel module: a command that needs it, run in a separate network namespace
_KERNEL_MODULES = {
    "bridge": "ip link add name trial type bridge",
    "veth": "ip link add name left type veth peer name right",
    "sch_tbf": "tc qdisc add dev lo root tbf rate 1mbit burst 80000b latency 50ms",
}


@dataclass(frozen=True)
class Missing:
    """A requirement that this machine lacks, and the exact fix."""

    what: str
    fix: str
    only_for_delay: bool = False


def require(*, delay: bool, accounting: bool = False) -> None:
    """Raise if requirements of a testbed are missing.

    `delay`: also those of links with delay. `accounting`: also those of Slurm's accounting.
    """
    found = missing(accounting=accounting)
    lacking = [each for each in found if delay or not each.only_for_delay]
    if lacking:
        raise PacelineError(
            "this machine cannot run a testbed: " + "; ".join(each.what for each in lacking),
            fix="\n     ".join(dict.fromkeys(each.fix for each in lacking)),
        )


def missing(*, accounting: bool = False) -> list[Missing]:
    """Return the missing requirements for a testbed of this user; empty if there are none."""
    rootless = os.geteuid() != 0
    programs = _PROGRAMS | (_ACCOUNTING_PROGRAMS if accounting else {})
    lacking = _missing_programs(programs | (_ROOTLESS_PROGRAMS if rootless else {}))
    if rootless:
        lacking += _missing_permissions() + _missing_sub_ids()
    if not lacking:  # otherwise the trial would only report the same problems again
        lacking += _missing_in_a_trial()
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        lacking.append(
            Missing(
                "/dev/net/tun can't be opened (needed for --delay)",
                "sudo modprobe tun; in a container: add --device /dev/net/tun",
                only_for_delay=True,
            )
        )
    return lacking


def _missing_programs(programs: dict[str, tuple[str, str]]) -> list[Missing]:
    return [
        Missing(
            f"the program {program} is not installed",
            f"sudo apt install {debian}   (Fedora, RHEL: sudo dnf install {fedora})",
        )
        for program, (debian, fedora) in programs.items()
        if shutil.which(program, path=search_path()) is None
    ]


def _missing_permissions() -> list[Missing]:
    refusing_values = {
        "user.max_user_namespaces": ("0", "15000"),
        "kernel.unprivileged_userns_clone": ("0", "1"),
        "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    }
    return [
        Missing(
            f"the kernel refuses user namespaces to ordinary users ({setting}={refusing})",
            f"sudo sysctl -w {setting}={allowing}",
        )
        for setting, (refusing, allowing) in refusing_values.items()
        if _sysctl(setting) == refusing
    ]


def _sysctl(setting: str) -> str | None:
    path = _SYSCTLS / setting.replace(".", "/")
    return path.read_text().strip() if path.exists() else None


def _missing_sub_ids() -> list[Missing]:
    user = getpass.getuser()
    lacking = []
    for kind in ("uid", "gid"):
        given = _sub_ids(_ETC / f"sub{kind}")
        if not any(owner in (user, str(os.getuid())) for owner, _ in given):
            first = max([_FIRST_SUB_ID, *(end for _, end in given)])
            ids = f"{first}-{first + _SUB_IDS - 1}"
            lacking.append(
                Missing(
                    f"the user {user} has no sub-{kind}s in /etc/sub{kind}",
                    f"sudo usermod --add-sub{kind}s {ids} {user}",
                )
            )
    return lacking


def _sub_ids(path: Path) -> list[tuple[str, int]]:
    """Return each owner of sub-IDs, with the first ID after its range."""
    if not path.exists():
        return []
    entries = [line.split(":") for line in path.read_text().splitlines() if line.count(":") == 2]
    return [(owner, int(first) + int(count)) for owner, first, count in entries]


def _missing_in_a_trial() -> list[Missing]:
    checks = "; ".join(
        f"{command} >/dev/null 2>&1 || echo {module}" for module, command in _KERNEL_MODULES.items()
    )
    try:
        trial = subprocess.run(
            ["unshare", *namespace_options(), "sh", "-c", checks],
            env={**os.environ, "PATH": search_path()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Missing("a trial of namespaces hung", "see whether the machine is overloaded")]
    if trial.returncode != 0:
        return [_refused(trial.stderr.strip())]
    return [
        Missing(f"the kernel lacks {module}", f"sudo modprobe {module}")
        for module in trial.stdout.split()
    ]


def _refused(complaint: str) -> Missing:
    if "map-auto" in complaint:
        return Missing(
            "unshare is too old to map sub-uids (no --map-auto)",
            "install util-linux 2.38 or newer, or run as root",
        )
    return Missing(
        f"namespaces are refused here: {complaint}",
        "in a container: start it with --privileged; else ask the administrator to allow user "
        "namespaces",
    )
