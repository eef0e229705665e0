"""Build the wheel, install it in a new environment, and run the README's quick start from it.

    python scripts/try_wheel.py torch==2.13.0   # all packages from the index: minutes
    python scripts/try_wheel.py --borrow        # those of the Python that runs this: seconds

A borrowed environment lends its packages, but not its Paceline.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK_START = re.compile(r"^## Quick start$.*?^<!-- run -->\n```bash\n(.*?)```", re.S | re.M)


def run(*command: str | Path, folder: Path, path: str = os.environ["PATH"]) -> None:
    """Run a command without the variables that would let it find this checkout."""
    print("+", *command, flush=True)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, cwd=folder, env=kept | {"PATH": path}, check=True)


def install(wheel: Path, environment: Path, torch: str | None) -> None:
    """Install the wheel; without `torch`, beside the packages of this Python."""
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    if torch:
        run(*pip, torch, folder=environment)
        run(*pip, torch, f"{wheel}[report,examples]", folder=environment)
        return
    run(*pip, "--no-deps", "--no-index", wheel, folder=environment)
    # Python does not read the .pth files of a folder that a .pth file names, so this checkout's
    # editable installation stays out.
    (site,) = environment.glob("lib/python3*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")


def main() -> None:
    """Try the wheel in a folder that is removed afterwards."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("torch", nargs="?", help="requirement of torch, such as torch==2.13.0")
    parser.add_argument("--borrow", action="store_true", help="use the packages of this Python")
    given = parser.parse_args()
    if given.borrow == bool(given.torch):
        parser.error("give either a requirement of torch or --borrow")
    with tempfile.TemporaryDirectory(prefix="paceline-wheel-", dir="/var/tmp") as name:
        folder = Path(name)
        build = ["--no-build-isolation"] if given.borrow else []
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *build]
        run(*pip, "-w", folder, ROOT, folder=folder)
        (wheel,) = folder.glob("*.whl")
        venv.create(folder / "environment", symlinks=True)
        install(wheel, folder / "environment", given.torch)
        shutil.copytree(ROOT / "examples", folder / "examples")
        bin_folder = folder / "environment" / "bin"
        where = f"import paceline; assert paceline.__file__.startswith({str(folder)!r})"
        run(bin_folder / "python", "-c", where, folder=folder)
        path = f"{bin_folder}:{os.environ['PATH']}"
        run("paceline", "--help", folder=folder, path=path)
        commands = QUICK_START.search((ROOT / "README.md").read_text())
        assert commands, "the README has a quick start"
        run("bash", "-euc", commands[1], folder=folder, path=path)
        assert (folder / "digits.html").stat().st_size


if __name__ == "__main__":
    main()
