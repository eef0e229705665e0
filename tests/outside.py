"""Outside packages: those of tests/plugins, and the simulated device.

They are installed for a test as a user would install them.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

PLUGINS = Path(__file__).parent / "plugins"
SIMULATED = Path(__file__).parent.parent / "simulated"


@cache
def installed(name: str) -> Path:
    """Install a package of tests/plugins, or `simulated`, into its own folder, once per session.

    The folder goes on `sys.path` of a process that is to have the package.
    """
    folder = Path(mkdtemp(prefix=f"paceline-installed-{name}-"))
    # Building leaves files beside the source.
    package = SIMULATED if name == SIMULATED.name else PLUGINS / name
    source = shutil.copytree(package, folder / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command += ["--target", str(folder / "installed"), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder / "installed"


def environment(*names: str) -> dict[str, str]:
    """The environment of a process that has these packages installed."""
    folders = [str(installed(name)) for name in names]
    before = [each for each in [os.environ.get("PYTHONPATH")] if each]
    return os.environ | {"PYTHONPATH": os.pathsep.join([*folders, *before])}
