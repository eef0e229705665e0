"""Containers on two nodes train as workers outside. Before, a job could not name an image."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command import paceline, write_training
from containers import images
from paceline import testbed

pytestmark = [
    *(pytest.mark.slurm, pytest.mark.root, pytest.mark.nightly, pytest.mark.timeout(3000)),
]

NAME = "container-box"

OWN = """
import os, sys
from pathlib import Path
import width

whole = training

def training():
    inside = Path("/run/.containerenv").exists()
    print("inside" if inside else "outside", paceline.__file__, Path(sys.argv[1]).read_text())
    return whole()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="paceline-test-", dir="/var/tmp") as found:
        yield Path(found)


@pytest.fixture
def programs(folder: Path) -> Path:
    """A folder with a `podman` that has the image."""
    if os.geteuid() != 0 or images.missing():
        pytest.skip(f"needs root and {', '.join(images.PROGRAMS)}")
    stored = folder / "image"
    stored.mkdir()
    return images.build(stored)


@pytest.fixture
def cluster() -> Iterator[str]:
    if NAME in testbed.running():
        testbed.down(NAME)
    testbed.up(testbed.TestbedSpec(name=NAME, nodes=2, link="1gbit"))
    try:
        yield NAME
    finally:
        testbed.down(NAME)


def test_two_containers_on_two_nodes(folder: Path, programs: Path, cluster: str) -> None:
    training, data = folder / "training", folder / "data"
    training.mkdir()
    data.mkdir()
    (data / "words").write_text("some words")
    (training / "width.py").write_text("WIDTH = 1\n")
    write_training(training, OWN)
    asked = ("--container", images.IMAGE, "--container-runtime", "podman", "--container-bind", data)
    path = f"{programs}:{os.environ['PATH']}"
    inside = submitted(training, cluster, "inside", data, *asked, PATH=path)
    outside = submitted(training, cluster, "outside", data)
    for result in (inside, outside):
        assert (result["status"], result["steps"], result["workers"]) == ("finished", 20, 2)
        assert sorted(result["hosts"]) == ["n1", "n2"]
    assert inside["final_loss"] == pytest.approx(outside["final_loss"], rel=1e-6)
    for node in ("n1", "n2"):
        assert "inside /opt/paceline/lib" in log(training, "inside", node)
        assert "some words" in log(training, "inside", node)
        assert "outside" in log(training, "outside", node)
    print(f"loss inside {inside['final_loss']!r}, outside {outside['final_loss']!r}")
    shutil.rmtree(folder / "image" / "nodes")


def submitted(
    training: Path, cluster: str, name: str, data: Path, *words: str | Path, **environment: str
) -> dict[str, Any]:
    done = paceline(
        *("submit", "train.py", "--nodes", "2", "--testbed", cluster, "--wait", "--json"),
        *("--name", name, *words, "--", data / "words"),
        folder=training,
        seconds=300,
        **environment,  # type: ignore[arg-type]
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def log(folder: Path, name: str, node: str) -> str:
    (run,) = (folder / "runs").glob(f"{name}-*")
    return (run / "logs" / f"{node}.log").read_text()
