"""How many workers this machine has room for."""

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from paceline.cluster.visible_devices import KIND_VARIABLE
from paceline.specs import PacelineError

WORKERS_PER_CORE = 8
"""Limit for CPU workers. More workers than cores serve trials only; beyond this they thrash."""

_ASKING_SECONDS = 120
_SIGNS = {
    "libtorch_cuda.so": ("nvidia[0-9]*", "dxg"),  # the latter under WSL
    "libtorch_hip.so": ("kfd",),
    "libtorch_xpu.so": ("dri/renderD*",),
}
"""Files of devices in /dev, by the library of the build of torch that can use them."""


def check_room(workers: int, accelerators: int) -> str | None:
    """Refuse more workers than devices; return a warning if workers share CPU cores."""
    if accelerators:
        if workers > accelerators:
            raise PacelineError(
                f"{workers} workers were asked for, but this machine has {accelerators} devices",
                fix=f"use -n {accelerators}, or `paceline submit --nodes N` for more machines",
            )
        return None
    cores = len(os.sched_getaffinity(0))
    if workers > cores * WORKERS_PER_CORE:
        raise PacelineError(
            f"{workers} workers were asked for, but this machine has {cores} CPU cores and no"
            f" accelerator, enough for at most {cores * WORKERS_PER_CORE}",
            fix=f"use -n {cores}, or `paceline submit --nodes N` for more machines",
        )
    if workers > cores:
        return f"{workers} workers share {cores} CPU cores: fine for trying things out, but slow"
    return None


@cache
def accelerators() -> int:
    """Return the number of this machine's accelerators, by the kind of device that workers use.

    Torch is asked in another process, and only if a kind of device is named or torch may find one.
    """
    named = os.environ.get(KIND_VARIABLE)
    if named == "cpu" or (named is None and not _may_have_accelerators()):
        return 0
    asked = subprocess.run(
        [sys.executable, "-m", "paceline.comm.binding.count"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_ASKING_SECONDS,
        check=False,
    )
    if asked.returncode:
        return 0  # torch does not load: the workers' log says why
    answer = json.loads(asked.stdout.splitlines()[-1])
    if "problem" in answer:
        raise PacelineError(answer["problem"], fix=answer["fix"])
    return int(answer["devices"])


def _may_have_accelerators(dev: Path = Path("/dev")) -> bool:
    """Return whether torch is built for a kind of accelerator that this machine has files for."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return False
    libraries = Path(torch.origin).parent / "lib"
    return any(
        (libraries / library).exists() and any(True for _ in dev.glob(pattern))
        for library, patterns in _SIGNS.items()
        for pattern in patterns
    )
