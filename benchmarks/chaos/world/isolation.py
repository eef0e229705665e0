"""A place of its own for these runs: file systems that can be filled, a network with nobody else.

No rights are needed: it is a user namespace, with mounts and a loopback device inside. All of it is
gone when the last process in it is.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

_MARK = "PACELINE_CHAOS_ROOM"


def enter() -> None:
    """Go on inside such a room: the program starts anew there, with the same words."""
    if os.environ.get(_MARK):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "chaos", "/dev/shm"], check=True)
        return
    program = shutil.which("unshare")
    if program is None:
        sys.exit("unshare is missing, with which a room for these runs is made: install util-linux")
    words = [program, "--user", "--map-root-user", "--mount", "--net", "--"]
    again = [sys.executable, *sys.orig_argv[1:]]
    os.execve(program, [*words, *again], os.environ | {_MARK: "1"})


def own_disk(folder: Path, megabytes: int) -> None:
    """Give a folder a small file system of its own."""
    size = f"size={megabytes}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "chaos", str(folder)], check=True)
