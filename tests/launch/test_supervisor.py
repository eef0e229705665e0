"""`paceline run` as a user types it: real processes on this machine."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from command import PACELINE, paceline, paceline_json, workers_of, write_training

pytestmark = pytest.mark.slow


def only_run(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    return run


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the training on one worker."""
    folder = tmp_path_factory.mktemp("alone")
    write_training(folder)
    return paceline_json("run", "train.py", "-n", "1", folder=folder)


def test_a_run_and_its_folder(alone: dict[str, Any], tmp_path: Path) -> None:
    write_training(tmp_path)
    result = paceline_json("run", "train.py", "-n", "2", "--name", "small", folder=tmp_path)
    assert result["final_loss"] == pytest.approx(alone["final_loss"], rel=1e-5)
    assert result["status"] == "finished"
    assert (result["steps"], result["samples"]) == (20, 592)  # the 7th batch of an epoch holds 8
    assert (result["workers"], result["nodes"]) == (2, 1)
    assert result["samples_per_second"] == pytest.approx(result["samples"] / result["seconds"])
    run = only_run(tmp_path)
    assert run.name.startswith("small-")
    files = {str(path.relative_to(run)) for path in run.rglob("*") if _is_own(path)}
    host = socket.gethostname()
    assert files == {
        "plan.toml",
        "outcome",
        "job.toml",
        "code/0.toml",
        f"code/0/{tmp_path.name}/train.py",
        "versions.toml",
        "secret",
        "lease/1.toml",
        "lease/1.released",
        "rendezvous/leader-0.json",
        "checkpoints/step-0000000020/manifest.json",
        "checkpoints/step-0000000020/manifest.json.sha256",
        "checkpoints/step-0000000020/model-00000-000.safetensors",
        "checkpoints/step-0000000020/model-00001-000.safetensors",
        f"events/{host}.jsonl",
        f"logs/{host}.log",
    }
    again = paceline_json("report", run, folder=tmp_path)
    assert again == result


@pytest.mark.nightly
def test_a_function_with_a_loop_of_its_own(tmp_path: Path) -> None:
    more = """
def loop():
    with paceline.start(training()) as trainer:
        for batch in trainer:
            out = trainer.step(batch)
    print("last step", out.step)
"""
    write_training(tmp_path, more)
    result = paceline_json("run", "train.py:loop", "-n", "2", folder=tmp_path)
    assert (result["steps"], result["status"]) == (20, "finished")
    (log,) = (only_run(tmp_path) / "logs").iterdir()
    assert sorted(log.read_text().splitlines()) == ["0: last step 20", "1: last step 20"]


def test_python_train_py_needs_no_folder(tmp_path: Path) -> None:
    import sys

    write_training(tmp_path, "\npaceline.fit(training())\n")
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "20 steps, 592 samples" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_plan_says_how_many_workers(tmp_path: Path) -> None:
    write_training(tmp_path)
    (tmp_path / "plan.toml").write_text("[layout]\nreplicas = 2\n")
    result = paceline_json("run", "train.py", "--plan", "plan.toml", folder=tmp_path)
    assert result["workers"] == 2
    done = paceline("run", "train.py", "--plan", "plan.toml", "-n", "3", folder=tmp_path, expect=2)
    assert "3 workers were asked for, but plan.toml plans 2" in done.stderr


@pytest.mark.nightly
def test_a_layout_by_options(alone: dict[str, Any], tmp_path: Path) -> None:
    write_training(tmp_path)
    words = ("run", "train.py", "-n", "4", "--shards", "2", "--micro-batch", "3", "--name", "four")
    sharded = paceline_json(*words, folder=tmp_path)
    assert sharded["final_loss"] == pytest.approx(alone["final_loss"], rel=1e-5)
    (run,) = (tmp_path / "runs").glob("four-*")
    plan = (run / "plan.toml").read_text()
    for line in ("replicas = 2", "shards = 2", "micro_batch = 3"):
        assert line in plan


def test_workers_that_shards_do_not_divide(tmp_path: Path) -> None:
    write_training(tmp_path)
    message = said(tmp_path, "-n", "3", "--shards", "2")
    assert "3 workers cannot be divided into copies of 2 (1 replicas x 2 shards)" in message
    message = said(tmp_path, "-n", "4", "--shards", "2", "--replicas", "1")
    assert "4 workers were asked for, but the layout plans 2: 1 replicas x 2 shards" in message


@pytest.mark.nightly
def test_recompute_of_a_model_without_blocks(tmp_path: Path) -> None:
    write_training(tmp_path)
    message = said(tmp_path, "--recompute", "block", expect=2)
    assert "recompute='block' needs blocks, but Sequential has no" in message
    assert "nn.ModuleList" in message


def said(folder: Path, *words: str, expect: int = 2) -> str:
    return paceline("run", "train.py", *words, folder=folder, expect=expect).stderr


def test_no_such_file(tmp_path: Path) -> None:
    assert "train.py cannot be read: No such file" in said(tmp_path)


def test_no_such_function(tmp_path: Path) -> None:
    write_training(tmp_path)
    message = paceline("run", "train.py:trainig", folder=tmp_path, expect=2).stderr
    assert "train.py has no function trainig(); it has data, training" in message
    assert "train.py:FUNCTION" in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.nightly
def test_the_wrong_thing_returned(tmp_path: Path) -> None:
    write_training(tmp_path, "\ndef wrong():\n    return 3\n\ndef nothing():\n    pass\n")
    message = paceline("run", "train.py:wrong", folder=tmp_path, expect=2).stderr
    assert "wrong() of train.py returned a value of type int, not a paceline.Training" in message
    assert "return paceline.Training" in message
    message = paceline("run", "train.py:nothing", folder=tmp_path, expect=2).stderr
    assert "returned nothing" in message


def test_not_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def training(:\n")
    assert "train.py is not valid Python: line 1" in said(tmp_path)


def test_more_workers_than_samples_in_a_batch(tmp_path: Path) -> None:
    write_training(
        tmp_path,
        "\nimport dataclasses\nsmall = training\n"
        "def training():\n    return dataclasses.replace(small(), batch=2)\n",
    )
    message = said(tmp_path, "-n", "3", expect=2)
    assert "the global batch is 2, but there are 3 workers" in message
    assert "use at most 2 workers, or a batch of at least 3" in message


def test_more_workers_than_devices(tmp_path: Path) -> None:
    write_training(tmp_path)
    message = said(tmp_path, "-n", "1000")
    assert "1000 workers were asked for, but this machine has" in message
    assert "paceline submit --nodes" in message


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    write_training(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        message = said(tmp_path, "-n", "2", "--port", str(port), expect=2)
    assert f"port {port} of 127.0.0.1 (lo) is taken by another program" in message
    assert "leave --port out" in message


def test_an_empty_dataset(tmp_path: Path) -> None:
    write_training(
        tmp_path,
        "\ndef data():\n    return TensorDataset(torch.zeros(0, 12), torch.zeros(0))\n",
    )
    assert "the dataset (TensorDataset) is empty" in said(tmp_path, expect=2)


def test_a_loss_that_becomes_nan(tmp_path: Path) -> None:
    write_training(tmp_path, "\nF.cross_entropy = lambda output, target: output.sum() / 0\n")
    message = said(tmp_path, "-n", "2", "--no-check", expect=2)
    assert "at step 1 on worker 0, 1" in message
    assert "lower the learning rate" in message


def test_a_worker_that_raises_is_named_with_its_log(tmp_path: Path) -> None:
    host = socket.gethostname()
    more = "\nimport os\nif os.environ['PACELINE_RANK'] == '1':\n    raise OSError('no disk')\n"
    write_training(tmp_path, more)
    message = said(tmp_path, "-n", "2", expect=1)
    assert f"worker 1 on node {host} failed: OSError: no disk" in message
    assert "raise OSError('no disk')" in message
    assert "the whole log is in runs/" in message


def test_a_worker_that_dies_at_start_is_named_with_its_log(tmp_path: Path) -> None:
    more = (
        "\nimport os, signal\nprint('about to die')\n"
        "if os.environ['PACELINE_RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    write_training(tmp_path, more)
    message = said(tmp_path, "-n", "2", expect=1)
    assert f"worker 1 on node {socket.gethostname()} failed: killed by SIGSEGV" in message
    assert "about to die" in message


SLOW = (
    "\nimport time\ntime_of_step = F.cross_entropy\n\ndef slow(output, target):\n"
    "    time.sleep(0.05)\n    return time_of_step(output, target)\nF.cross_entropy = slow\n"
    "\nimport dataclasses\nquick = training\ndef training():\n"
    "    return dataclasses.replace(quick(), steps=10_000)\n"
)


@pytest.fixture
def long_run(tmp_path: Path) -> "subprocess.Popen[str]":
    write_training(tmp_path, SLOW)
    process = subprocess.Popen(
        [*PACELINE, "run", "train.py", "-n", "2"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not any((tmp_path / "runs").glob("*/events/*.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def test_ctrl_c_stops_at_the_edge_of_a_step(
    long_run: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    long_run.send_signal(signal.SIGINT)
    _, errors = long_run.communicate(timeout=30)
    assert long_run.returncode == 3
    assert "stopped early at " in errors
    result = paceline_json("report", only_run(tmp_path), folder=tmp_path)
    assert result["status"] == "stopped"
    assert 0 < result["steps"] < 10_000


def test_workers_die_with_their_supervisor(long_run: "subprocess.Popen[str]") -> None:
    assert len(workers_of(long_run)) == 2
    everyone = psutil.Process(long_run.pid).children(recursive=True)
    os.kill(long_run.pid, signal.SIGKILL)
    long_run.communicate(timeout=10)
    _, alive = psutil.wait_procs(everyone, timeout=5)
    assert not alive


def test_stopped_while_a_replacement_loads(
    long_run: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    before = workers_of(long_run)
    min(before, key=lambda worker: worker.pid).kill()
    deadline = time.monotonic() + 30
    while workers_of(long_run) <= before:
        assert time.monotonic() < deadline, "nobody is started in its place"
        time.sleep(0.01)
    long_run.send_signal(signal.SIGTERM)
    _, errors = long_run.communicate(timeout=30)
    assert long_run.returncode == 3, errors
    assert paceline_json("report", only_run(tmp_path), folder=tmp_path)["status"] == "stopped"


def _is_own(path: Path) -> bool:
    """Whether a path is a file of the run, and not one that its code is linked to."""
    return path.is_file() and not path.is_symlink()
