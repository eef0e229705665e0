"""The scripts of docs/migration: before and after train the same, on two workers each."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from command import EXAMPLES, paceline

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
PRINTED = re.compile(r"^step (\d+): ([\d.]+)$", re.MULTILINE)
ACCURACY = re.compile(r"^accuracy: ([\d.]+)$", re.MULTILINE)
HELD_OUT_SAMPLES = 389


@dataclass(frozen=True)
class Before:
    """A script of another framework and how its users start it."""

    script: str
    module: str
    """What has to be installed."""
    launcher: tuple[str, ...] = TORCHRUN
    repeats: int = 0
    """Held-out samples that the framework counts twice."""

    def run(self, folder: Path) -> str:
        done = subprocess.run(
            [sys.executable, *self.launcher, self.script],
            cwd=folder,
            # torchrun leaves its folders of logs.
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(folder)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


DDP = Before("before_ddp.py", "torch")
OTHERS = (
    Before("before_accelerate.py", "accelerate"),
    Before("before_fabric.py", "lightning_fabric", ()),
    # 389 samples on two workers: its sampler repeats one.
    Before("before_lightning.py", "lightning", (), repeats=1),
    Before(
        "before_deepspeed.py",
        "deepspeed",
        (str(Path(sys.executable).parent / "deepspeed"), "--num_accelerators", "2"),
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("migration")
    shutil.copytree(EXAMPLES / "migration", made, dirs_exist_ok=True)
    return made


def events(run: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((run / "events").iterdir()):
        yield from map(json.loads, path.read_text().splitlines())


def losses(run: Path) -> list[float]:
    """The mean loss over the global batch of each step."""
    steps = sorted((each["first"], each["loss"]) for each in events(run) if each["kind"] == "steps")
    return [loss for _, several in steps for loss in several]


def accuracies(run: Path) -> list[float]:
    return [each["metrics"]["accuracy"] for each in events(run) if each["kind"] == "evaluated"]


def trained(folder: Path, name: str, *words: str) -> Path:
    script = "train_llama.py" if name == "llama" else "train.py"
    paceline("run", script, "-n", "2", "--name", name, *words, folder=folder)
    (run,) = (folder / "runs").glob(f"{name}-*")
    return run


@pytest.fixture(scope="module")
def after(folder: Path) -> Path:
    return trained(folder, "digits")


def assert_same(before: Before, folder: Path, after: Path) -> None:
    output = before.run(folder)
    printed = {int(step): float(loss) for step, loss in PRINTED.findall(output)}
    ours = losses(after)
    assert sorted(printed) == [11, 22, 33, 44]
    assert len(ours) == 44
    assert {step: ours[step - 1] for step in printed} == pytest.approx(printed, rel=1e-5)
    found = [float(each) for each in ACCURACY.findall(output)]
    tolerance = 1e-6 + before.repeats / HELD_OUT_SAMPLES
    assert found == pytest.approx(accuracies(after), abs=tolerance)


@pytest.mark.slow
def test_ddp(folder: Path, after: Path) -> None:
    assert_same(DDP, folder, after)
    learned = losses(after)
    assert learned[-1] < 0.6 * learned[0], "a network that does not learn is the same everywhere"


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("before", OTHERS, ids=lambda before: before.module)
def test_other_frameworks(before: Before, folder: Path, after: Path) -> None:
    if importlib.util.find_spec(before.module) is None:
        pytest.skip(f"{before.module} is not installed")
    assert_same(before, folder, after)


@pytest.mark.nightly
@pytest.mark.parametrize("layout", [("--micro-batch", "16"), ("--shards", "2")], ids=" ".join)
def test_options_of_the_pages_change_nothing(
    layout: tuple[str, str], folder: Path, after: Path
) -> None:
    divided = trained(folder, layout[0].strip("-"), *layout)
    assert losses(divided) == pytest.approx(losses(after), rel=1e-5)


@pytest.mark.nightly
def test_another_rate_is_seen(folder: Path, after: Path) -> None:
    """The comparison can fail: a rate that is 1 % higher is found."""
    (folder / "task.py").write_text(
        (EXAMPLES / "migration" / "task.py").read_text() + "\nRATE = 1.01 * RATE\n"
    )
    try:
        other = losses(trained(folder, "other"))
    finally:
        shutil.copy(EXAMPLES / "migration" / "task.py", folder)
    apart = max(abs(a - b) / b for a, b in zip(other, losses(after), strict=True))
    assert apart > 1e-3


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_transformers(folder: Path) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("the Trainer of Transformers needs accelerate, which is not installed")
    Before("before_transformers.py", "transformers").run(folder)
    state = json.loads((folder / "transformers-state/checkpoint-30/trainer_state.json").read_text())
    theirs = [each["loss"] for each in state["log_history"] if "loss" in each]
    assert losses(trained(folder, "llama")) == pytest.approx(theirs, rel=1e-5)
