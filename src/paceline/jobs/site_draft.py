"""A first site file, from what this machine and its scheduler tell."""

import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster.file_systems import LOCAL, MEMORY, file_system
from paceline.schedulers.scheduler import Scheduler, SiteChoice
from paceline.specs import PacelineError

_SCRATCH_VARIABLES = ("SCRATCH", "WORK", "PROJECT")
"""Usual names of a variable with the user's folder on a fast file system."""
_MODULE_VARIABLES = ("LMOD_CMD", "MODULESHOME")
_CONTAINER_PROGRAMS = ("apptainer", "singularity", "enroot", "podman-hpc", "podman")


@dataclass(frozen=True)
class Draft:
    """A site file to complete."""

    text: str
    missing: tuple[str, ...]
    """What its reader has to fill in or choose, in words."""

    def write(self, file: Path) -> None:
        """Write the file; refuse to replace one."""
        try:
            with file.open("x") as new:
                file.chmod(0o644)
                new.write(self.text)
        except FileExistsError:
            raise PacelineError(
                f"{file} exists already",
                fix="move it away, or write the new one elsewhere: -o FILE",
            ) from None


def draft_site(scheduler: Scheduler | None) -> Draft:
    """Return a site file: what is certain as values, the rest as comments to choose from."""
    choices = scheduler.choices() if scheduler else []
    lines = [
        f"# Defaults of Paceline's options, drafted on {socket.gethostname()}.",
        "# Choose where there are several, fill in what is missing, delete what you do not need.",
        "",
        "[options]",
    ]
    missing = []
    for choice in choices:
        lines += _lines(choice)
        if choice.needed and choice.default is None:
            missing.append(f"{choice.option}: {', '.join(choice.names)}")
    lines += _folders()
    if not any(line.startswith("runs") for line in lines):
        missing.append("runs: a folder that all nodes share")
    lines += _software()
    lines += [
        "",
        "# [prices]",
        '# currency = "EUR"',
        "# per_node_hour = 0.0",
        '# source = ""',
    ]
    return Draft(
        "\n".join(lines) + "\n", (*missing, "prices, if plans and reports shall give costs")
    )


def _lines(choice: SiteChoice) -> list[str]:
    shown = f"# {choice.option}: {', '.join(choice.names)}"
    value = choice.default or choice.names[0]
    mark = "" if choice.default else "# "
    return [shown, f'{mark}{choice.option} = "{value}"']


def _folders() -> list[str]:
    """Return the folder of runs, if a variable names one that other machines see."""
    for name in _SCRATCH_VARIABLES:
        folder = os.environ.get(name)
        if folder and Path(folder).is_dir() and os.access(folder, os.W_OK):
            kind = file_system(Path(folder))
            if kind not in MEMORY | LOCAL:
                return [f"# on {kind}", f'runs = "${name}/runs"']
    return ['# runs = "/scratch/$USER/runs"']


def _software() -> list[str]:
    found = []
    if any(name in os.environ for name in _MODULE_VARIABLES):
        found.append('# setup = ["module load …"]')
    programs = [each for each in _CONTAINER_PROGRAMS if shutil.which(each)]
    if programs:
        found += [f"# here: {', '.join(programs)}", '# container = "IMAGE"']
    return found
