"""Fuzz all targets: `PYTHONPATH=tests python -m fuzzing [--inputs N] [NAME…]`."""

import argparse
import json
import subprocess
import sys
import time

from rich.console import Console
from rich.progress import track
from rich.table import Table

from fuzzing.target import names


def main() -> None:
    """Fuzz each target in a process of its own, and print a table."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--inputs", type=int, default=100_000, help="inputs per target")
    words.add_argument("targets", nargs="*", help="targets (default: all)")
    options = words.parse_args()
    shown = Table("target", "inputs", "crashes", "peak MB", "seconds")
    failed = 0
    for name in track(options.targets or names(), console=Console(stderr=True)):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "fuzzing.one", name, str(options.inputs)],
            capture_output=True,
            text=True,
            check=False,
        )
        found = [json.loads(each) for each in done.stdout.splitlines() if each.startswith("{")]
        crashed = done.returncode != 0
        failed += crashed
        if crashed:
            print(done.stderr[-4000:], file=sys.stderr)
        peak = f"{found[0]['peak_megabytes']:.0f}" if found else "-"
        inputs = f"{found[0]['inputs']:,}" if found else "-"
        shown.add_row(name, inputs, str(int(crashed)), peak, f"{time.monotonic() - began:.0f}")
    Console().print(shown)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
