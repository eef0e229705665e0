"""An image built from the wheel by the Containerfile, without a registry."""

import platform
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/paceline:test"
PROGRAMS = ("podman", "runc", "mmdebstrap")

SETTINGS = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"

[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
log_driver = "none"
"""
"""Podman on hybrid control groups, and below the limits of a small machine."""

WRAPPER = """#!/bin/sh
# Podman with a storage per node, as on a cluster, and the images in one that all nodes read.
node={folder}/nodes/$(hostname)
mkdir -p "$node"
CONTAINERS_CONF={folder}/containers.conf exec {podman} --root "$node/root" --runroot "$node/run" \\
  --tmpdir "$node/tmp" --storage-opt additionalimagestore={folder}/images "$@"
"""


def missing() -> list[str]:
    """Return the programs that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def build(folder: Path) -> Path:
    """Build the image in a folder; return the folder whose `podman` has it."""
    (folder / "containers.conf").write_text(SETTINGS)
    base, context = folder / "base.tar", folder / "context"
    # The machine's own release, since its Python chooses the wheels.
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    _call("mmdebstrap", "--variant=minbase", "--include=python3-venv", release, base)
    (context / "dist").mkdir(parents=True)
    pip = (sys.executable, "-m", "pip", "--quiet")
    _call(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", context / "dist", ROOT)
    (wheel,) = (context / "dist").glob("paceline-*.whl")
    _call(*pip, "download", "-c", ROOT / "constraints.txt", "-d", context / "dist", wheel)
    shutil.copy(ROOT / "Containerfile", context)
    podman = ("env", f"CONTAINERS_CONF={folder / 'containers.conf'}", "podman")
    stored = ("--root", folder / "images", "--runroot", folder / "run")
    _call(*podman, *stored, "import", base, "localhost/base:test")
    _call(
        *podman,
        *stored,
        *("build", "--isolation", "chroot", "--network", "host", "--tag", IMAGE),
        *("--build-arg", "BASE=localhost/base:test", "--build-arg", "PIP_OPTIONS=--no-index"),
        context,
    )
    programs = folder / "bin"
    programs.mkdir()
    wrapper = programs / "podman"
    wrapper.write_text(WRAPPER.format(folder=folder, podman=shutil.which("podman")))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    return programs


def _call(*words: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
