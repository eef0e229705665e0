"""`paceline plan`: from a model and a cluster to a plan that runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command import CLUSTER, EXAMPLES, paceline, paceline_json, write_training
from paceline.cli.app import app
from paceline.profile.named_models import profile_of
from paceline.specs import Layout, PacelineError, Plan, TrainingProfile

GPT = "gpt: layers=12 width=768 heads=12 seq=1k vocab=50304"


def timed_on(device: str) -> TrainingProfile:
    """What a probe of train.py would have written on such devices."""
    profile = profile_of(GPT).model_copy(update={"measured_on": device})
    return TrainingProfile(
        train="train.py", function="training", batch=64, steps=10, precisions={"bf16": profile}
    )


@pytest.mark.nightly
def test_times_of_other_devices_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    write_training(tmp_path)
    timed_on("a small computer").write(tmp_path / "profile.toml")
    timed = paceline("plan", "train.py", folder=tmp_path)
    assert "times of the model: profile.toml" in timed.stderr
    assert "124.5 million parameters" in timed.stdout
    timed_on("another device").write(tmp_path / "profile.toml")
    counted = paceline("plan", "train.py", folder=tmp_path)
    assert "242 parameters" in counted.stdout


def test_a_model_by_its_dimensions(tmp_path: Path) -> None:
    said = paceline_json(
        *("plan", "--model", GPT, "--device", "a100-80gb", "--nodes", "1,2,4", "--batch", "512"),
        *("--steps", "1000", "-t", "60", "-o", "gpt.toml"),
        folder=tmp_path,
    )
    assert said["parameters"] == pytest.approx(124e6, rel=0.02)
    assert [point["nodes"] for point in said["curve"]] == [1, 2, 4]
    assert said["training"]["steps"] == 1000
    assert said["training"]["slots"] >= 1
    plan = Plan.read(tmp_path / "gpt.toml")
    assert plan.nodes == said["nodes"]
    assert plan.layout.workers == said["nodes"] * 8
    assert plan.estimate is not None
    assert "<svg" in (tmp_path / "gpt.svg").read_text()


def test_a_table_with_reasons_comes_first(tmp_path: Path) -> None:
    words = ("plan", "--model", "llama2-7b", "--device", "h100-80gb", "--nodes", "2")
    shown = paceline(*words, "--batch", "256", folder=tmp_path)
    assert "replicas only" in shown.stdout
    assert "GB on a" in shown.stdout
    first, second, third = shown.stdout.splitlines()[:3]
    assert first.startswith("Use 2 nodes (16 devices): ")
    assert second.startswith("It takes ")
    assert third.startswith("Because ")
    assert "a step is computation" in " ".join(shown.stdout.split())
    assert "plan: plan.toml" in shown.stderr


def test_planning_by_dimensions_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from paceline.cli.app import main; sys.argv ="
        f" ['paceline', 'plan', '--model', {GPT!r}, '--device', 'h200', '--nodes', '1', '--batch',"
        " '64', '--json']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["nodes"] == 1


@pytest.mark.nightly
def test_the_plan_of_a_training_runs_and_is_held_against_it(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    write_training(tmp_path)
    said = paceline_json("plan", "train.py", "--nodes", "2", "--goal", "fastest", folder=tmp_path)
    assert said["batch"] == 32
    assert said["training"]["steps"] == 20
    ran = paceline_json("run", "train.py", "--plan", "plan.toml", folder=tmp_path)
    assert ran["workers"] == 2
    predicted = ran["prediction"]
    assert predicted["predicted_seconds"] == pytest.approx(
        said["estimate"]["step_seconds"]["value"]
    )
    other = paceline_json(
        *("run", "train.py", "--plan", "plan.toml", "--micro-batch", "3"), folder=tmp_path
    )
    assert other["prediction"] is None


@pytest.mark.nightly
def test_every_layout_on_the_table_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER.replace("nodes = 2", "nodes = 4"))
    train = EXAMPLES / "gpt" / "train.py"
    said = paceline_json("plan", train, "--goal", "fastest", "--nodes", "4", folder=tmp_path)
    layouts = [said["estimate"]["layout"], *(each["layout"] for each in said["alternatives"])]
    assert len(layouts) > 3
    for layout in layouts:
        Plan(layout=Layout.model_validate(layout)).write(tmp_path / "one.toml")
        paceline("run", train, "--plan", "one.toml", "--dry-run", folder=tmp_path)


@pytest.mark.parametrize(
    ("words", "problem", "fix"),
    [
        ((), "TRAIN or for --model; neither was given", "paceline plan train.py"),
        (("train.py", "--model", GPT), "both were given", "--model"),
        (("--model", GPT), "no cluster is given", "paceline probe"),
        (
            ("--model", GPT, "--device", "h100-80gb", "--batch", "8"),
            "does not say how many nodes",
            "--nodes 16",
        ),
        (
            ("--model", GPT, "--device", "h100-80gb", "--nodes", "2"),
            "does not give the batch size",
            "--batch N",
        ),
        (
            ("--model", GPT, "--device", "h100-80gb", "--nodes", "two", "--batch", "8"),
            "--nodes two is not a list of numbers",
            "--nodes 1,2,4,8",
        ),
        (
            ("--model", GPT, "--device", "h101", "--nodes", "2", "--batch", "8"),
            "no device 'h101'",
            "h100-80gb",
        ),
        (
            ("--model", GPT, "--cluster", "c.toml", "--device", "h200", "--batch", "8"),
            "both describe the cluster",
            "one of them",
        ),
        (
            ("--model", GPT, "--cluster", "c.toml", "--nodes", "8", "--batch", "8"),
            "--nodes 8 was given, but the cluster has 2",
            "fewer",
        ),
        (
            ("--model", GPT, "--cluster", "c.toml", "--batch", "8", "--deadline", "10"),
            "not the length of the training",
            "--steps N",
        ),
        (
            (
                *("--model", GPT, "--cluster", "c.toml", "--batch", "8"),
                *("--steps", "1000", "--budget", "10"),
            ),
            "not the price of the nodes",
            "per_node_hour",
        ),
        (
            ("--model", GPT, "--cluster", "c.toml", "--batch", "8", "--critical-batch", "99"),
            "--critical-batch was given, but not the length of the training",
            "add --tokens N or --steps N",
        ),
        (
            ("--model", GPT, "--cluster", "c.toml", "--batch", "8,16", "--steps", "9"),
            "--batch 8,16 compares batches by what they learn",
            "add --critical-batch N",
        ),
        (
            ("train.py", "--cluster", "c.toml", "--tokens", "3M"),
            "--tokens 3M was given, but the tokens of a sample of train.py are not known",
            "--steps N",
        ),
        (
            ("--model", GPT, "--cluster", "c.toml", "--batch", "8", "--partition", "gpu"),
            "--partition gpu is for the time in the queue",
            "add --queue",
        ),
        (
            ("--model", GPT, "--cluster", "c.toml", "--batch", "8", "--tokens", "3G"),
            "--tokens 3G is not a number above 0",
            "--tokens 15T",
        ),
        (
            ("train.py", "--cluster", "c.toml", "--profile", "other.toml"),
            "other.toml has the times of train.py:training on another device, not of",
            "paceline probe train.py",
        ),
        (
            ("--model", GPT, "--cluster", "c.toml", "--batch", "8", "--precision", "fp32"),
            "planned in 16 bits",
            "leave --precision out",
        ),
        (
            ("--model", GPT, "--cluster", "c.toml", "--batch", "8", "--precision", "fp16"),
            "no matrix products in fp16",
            "bf16",
        ),
        (
            (
                *("--model", GPT, "--cluster", "c.toml", "--batch", "8"),
                *("--steps", "1000", "--deadline", "1"),
            ),
            "no number of nodes keeps within the limits",
            "later --deadline",
        ),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    problem: str,
    fix: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(CLUSTER)
    write_training(tmp_path)
    timed_on("another device").write(tmp_path / "other.toml")
    with pytest.raises(PacelineError) as caught:
        CliRunner().invoke(app, ["plan", *words], catch_exceptions=False)
    assert problem in caught.value.problem
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("model", "batch", "nodes", "problem", "fix"),
    [
        ("llama3-8b", "1021", "8", "1021, a prime number,", "--batch 1020 or --batch 1024"),
        (
            "llama3-8b",
            "1021",
            "7,13",
            "over 104 devices",
            "--batch 1015 or --batch 1022 on 7 nodes",
        ),
        ("llama3-405b", "2048", "12500", "over 100,000 devices", "--batch 6250 on 12,500 nodes"),
        (
            "llama3-70b",
            "1",
            "1",
            "does not fit on 8 devices",
            "4 nodes (32 devices) with --batch 2",
        ),
    ],
)
def test_the_nearest_feasible_choice_is_shown(
    tmp_path: Path, model: str, batch: str, nodes: str, problem: str, fix: str
) -> None:
    words = ("plan", "--model", model, "--batch", batch, "--device", "h100-80gb", "--nodes", nodes)
    shown = paceline(*words, folder=tmp_path, expect=2).stderr
    assert problem in shown
    assert fix in shown


def test_a_synchronization_mode_that_fits_nowhere_is_left_out(tmp_path: Path) -> None:
    said = paceline_json(
        *("plan", "--model", "llama3-70b", "--batch", "1024"),
        *("--device", "h100-80gb", "--nodes", "7,8"),
        folder=tmp_path,
    )
    assert said["nodes"] == 8
    assert said["too_few"] == 7


LSTM = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
import paceline

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(8, 64, batch_first=True)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.recurrent(x)[0][:, -1])

def training():
    data = TensorDataset(torch.randn(64, 50, 8), torch.randint(3, (64,)))
    return paceline.Training(
        model=Model,
        data=data,
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=16,
        steps=10,
    )
"""


@pytest.mark.nightly
def test_an_lstm_is_named_and_timed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LSTM.replace("WIDTH", "64"))
    words = ("plan", "train.py", "--device", "a100-80gb", "--nodes", "1", "--precision", "fp32")
    timed = paceline_json(*words, folder=tmp_path)
    counted = paceline_json(*words, "--count", folder=tmp_path)
    assert timed["uncounted_operators"] == ["aten::mkldnn_rnn_layer"]
    assert any("measured on this machine's" in remark for remark in timed["remarks"])
    assert not any("108 cores" in remark for remark in timed["remarks"])  # an A100's units
    assert any("lower bound" in remark for remark in counted["remarks"])
    seconds = [each["estimate"]["seconds"]["compute"] for each in (counted, timed)]
    assert 0 < seconds[0] < seconds[1]


def test_a_forward_that_does_not_match_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LSTM.replace("WIDTH", "65"))
    words = ("plan", "train.py", "--device", "a100-80gb", "--nodes", "1")
    shown = paceline(*words, folder=tmp_path, expect=2).stderr
    assert "the model's forward fails on a batch of two samples: train.py, line" in shown
    assert "paceline run TRAIN -n 1" in shown
