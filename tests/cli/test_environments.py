"""A job whose shell passes next to nothing runs the Python that submitted it, without activation:
a virtual environment of Python's own, and one of uv. Conda is not installed where the tests run."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import paceline
from command import write_training

pytestmark = [pytest.mark.slurm, pytest.mark.nightly]

PASSED = ("HOME", "PATH", "XDG_RUNTIME_DIR")
OWN = """
import os, sys
print("prefix", sys.prefix, "activated" if "VIRTUAL_ENV" in os.environ else "not activated")
"""


@pytest.mark.parametrize("kind", ["venv", "uv"])
def test_the_python_of_an_environment(kind: str, cluster: str, shared_folder: Path) -> None:
    environment = shared_folder / "env"
    python = sys.base_prefix + "/bin/python3"
    made = {
        "venv": [python, "-m", "venv", "--without-pip", environment],
        "uv": [sys.executable, "-m", "uv", "venv", "--quiet", "--python", python, environment],
    }
    subprocess.run(list(map(str, made[kind])), check=True, timeout=60)
    _add_packages(environment)
    write_training(shared_folder, OWN)
    command = [str(environment / "bin" / "python"), "-m", "paceline", "submit", "train.py"]
    done = subprocess.run(
        [*command, "--nodes", "2", "--testbed", cluster, "--wait", "--json", "--keep-env", "HOME"],
        cwd=shared_folder,
        env={name: value for name, value in os.environ.items() if name in PASSED},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "finished"
    (run,) = (shared_folder / "runs").iterdir()
    for node in ("n1", "n2"):
        said = (run / "logs" / f"{node}.log").read_text()
        assert f"prefix {environment} not activated" in said


def _add_packages(environment: Path) -> None:
    """Let an environment see the packages of this one, and this Paceline first."""
    (folder,) = environment.glob("lib/python3*/site-packages")
    ours = Path(paceline.__file__).parent.parent
    packages = sysconfig.get_path("purelib")
    (folder / "tests.pth").write_text(f"{ours}\nimport site; site.addsitedir({packages!r})\n")
