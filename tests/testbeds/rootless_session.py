"""What an ordinary user does with a testbed; run as that user, prints JSON."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from command import EXAMPLES
from paceline import testbed

NAME = "rootless"
SHORT_GPT = f"""
import dataclasses, sys
sys.path.insert(0, {str(EXAMPLES / "gpt")!r})
import train as example

def training():
    return dataclasses.replace(example.training(), steps=4)
"""


def main() -> None:
    os.chdir(Path.home())
    lacking = [each.what for each in testbed.missing()]
    started = time.monotonic()
    status = testbed.up(testbed.TestbedSpec(name=NAME, nodes=4, link="100mbit", delay="2ms"))
    seconds = time.monotonic() - started
    try:
        testbed.link(NAME, "n1", delay="0")
        testbed.link(NAME, "n2", rate="50mbit")
        testbed.stop(NAME, "n3")
        testbed.start(NAME, "n3")
        print(
            json.dumps(
                {
                    "missing": lacking,
                    "seconds": seconds,
                    "rootless": status.rootless,
                    "hosts": sorted(_run("srun", "-N4", "hostname").split()),
                    "as": _run("srun", "-N1", "sh", "-c", "id -u; echo done > written").strip(),
                    "run": _submitted(),
                    "owner": (Path.home() / "written").stat().st_uid,
                    "user": os.getuid(),
                }
            )
        )
    finally:
        testbed.down(NAME)


def _submitted() -> object:
    """What `submit`, then `watch` and `report`, say of the GPT example on four nodes."""
    Path("train.py").write_text(SHORT_GPT)
    words = ["submit", "train.py", "--nodes", "4", "--testbed", NAME, "--wait", "--json"]
    summary = json.loads(_paceline(*words))
    (run,) = Path("runs").iterdir()
    assert "finished" in _paceline("watch", str(run))
    _paceline("report", str(run), "-o", "page.html")
    assert "n4" in Path("page.html").read_text()
    return summary


def _paceline(*words: str) -> str:
    command = [sys.executable, "-m", "paceline", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=180, check=True)
    return done.stdout


def _run(*command: str) -> str:
    return subprocess.run(
        [*testbed.command_prefix(NAME), *command],
        env={**os.environ, **testbed.environment(NAME)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=30,
        check=True,
    ).stdout


if __name__ == "__main__":
    main()
