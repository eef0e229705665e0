"""What works on this machine and what does not, each with what to do about it."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import psutil

from paceline.cluster.file_systems import LOCAL, MEMORY, file_system
from paceline.cluster.interfaces import Kind, interfaces, outward
from paceline.cluster.open_files import MOST_BY_GLOO, enough_for, most_files, needed_files
from paceline.schedulers.scheduler import SCHEDULERS, Scheduler
from paceline.specs import PacelineError
from paceline.specs.finding import Finding

_LEAST_FREE_MEMORY_BYTES = 2 * 2**30
_LEAST_FREE_DISK_BYTES = 5 * 2**30


def examine() -> Iterator[Finding]:
    """Run all checks and yield their findings one at a time."""
    for check in CHECKS:
        yield check()
    for scheduler in SCHEDULERS:
        yield _scheduler(scheduler)
    for check in LAST_CHECKS:
        yield check()


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _torch() -> Finding:
    # In a separate process: a broken installation must not crash the doctor.
    program = (
        "import torch, torch.distributed as d; a = torch.accelerator;"
        "n = a.device_count() if a.is_available() else 0;"
        "k = a.current_accelerator().type if n else 'cpu';"
        "print(torch.__version__, k, n, d.is_available() and d.is_gloo_available())"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        return Finding(
            "torch", "bad", said[-1] if said else "it does not load", "pip install --upgrade torch"
        )
    version, kind, count, gloo = done.stdout.split()
    devices = f"{count} {kind} devices" if count != "0" else "no accelerator, the CPU is used"
    if gloo != "True":
        return Finding("torch", "bad", f"{version} without Gloo", "install the official build")
    return Finding("torch", "ok", f"{version}, {devices}")


def _report_extra() -> Finding:
    try:
        return Finding("report", "ok", f"altair {metadata.version('altair')}")
    except metadata.PackageNotFoundError:
        return Finding("report", "note", "pictures need Altair", 'pip install "paceline[report]"')


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0))
    return Finding("cpu", "ok", f"{usable} of {os.cpu_count()} cores are this process's")


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    text = f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"
    if memory.available < _LEAST_FREE_MEMORY_BYTES:
        return Finding("memory", "note", text, "end what you do not need before training here")
    return Finding("memory", "ok", text)


def _files() -> Finding:
    most = most_files()
    workers = enough_for(most)
    text = f"a process may open {most:,}: enough for {workers:,} workers on accelerators"
    if most >= needed_files(MOST_BY_GLOO, by_gloo=True):
        return Finding("open files", "ok", text)
    if workers < 2:
        text = f"a process may open {most:,}: too few for any run of several workers"
    fix = (
        "on nodes of a cluster, raise the hard limit: LimitNOFILE of slurmd's service, `ulimit -Hn`"
    )
    return Finding("open files", "note", text, fix)


def _network() -> Finding:
    found = interfaces()
    names = ", ".join(
        f"{each.name} {each.address}" for each in found if each.kind is not Kind.LOOPBACK
    )
    try:
        return Finding("network", "ok", f"{outward(found).name} towards other nodes ({names})")
    except PacelineError as error:
        return Finding("network", "note", error.problem, error.fix)


def _scheduler(scheduler: Scheduler) -> Finding:
    try:
        scheduler.ping()
        return Finding(scheduler.name, "ok", scheduler.summary())
    except PacelineError as error:
        return Finding(scheduler.name, "note", error.problem, error.fix)


def _folder() -> Finding:
    here = Path.cwd()
    kind, free = file_system(here), psutil.disk_usage(str(here)).free
    text = f"{here} is on {kind}, {free / 2**30:.0f} GiB free"
    if not os.access(here, os.W_OK):
        return Finding("folder", "bad", f"{here} cannot be written", "change to another folder")
    if free < _LEAST_FREE_DISK_BYTES:
        return Finding("folder", "note", text, "free some space, or use --runs DIR elsewhere")
    if kind in MEMORY | LOCAL:
        return Finding(
            "folder",
            "note",
            f"{text}: only this machine sees it",
            "submit to a cluster from a folder that its nodes share",
        )
    return Finding("folder", "ok", text)


def _clock() -> Finding:
    try:
        done = subprocess.run(
            ["timedatectl", "show", "--property=NTPSynchronized", "--value"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return Finding(
            "clock",
            "note",
            "nothing here tells whether it is synchronized",
            "check that chrony or ntpd runs on every node: reports compare their clocks",
        )
    if done.stdout.strip() == "yes":
        return Finding("clock", "ok", "synchronized")
    return Finding("clock", "note", "not synchronized", "start chrony or systemd-timesyncd")


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _torch,
    _report_extra,
    _cores,
    _memory,
    _files,
    _network,
)
LAST_CHECKS: tuple[Callable[[], Finding], ...] = (_folder, _clock)
