"""`paceline run --dry-run`: what it prints, and what it says of mistakes."""

from pathlib import Path

import pytest

from command import paceline, paceline_json, write_training

pytestmark = pytest.mark.slow

SAYS_MORE = """
print("a word of the user's own")
"""

OWN_LOOP = """
def loop():
    with paceline.start(training()) as trainer:
        for batch in trainer:
            trainer.step(batch)

def nothing():
    pass
"""

ASKS = """
class Asks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 2)

    def forward(self, x):
        if x.abs().max() > 3:
            x = x / 2
        return self.layer(x)

import dataclasses
plain = training

def training():
    return dataclasses.replace(plain(), model=Asks)
"""


TORCHS_ENCODER = """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(3, 8)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 4)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.encoder(self.into(x.unflatten(1, (4, 3)))).mean(1))

import dataclasses
plain = training

def training():
    return dataclasses.replace(plain(), model=Encoder)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "layout", ["shards", "tensor", pytest.param("pipeline", marks=pytest.mark.nightly)]
)
def test_torchs_own_transformer(layout: str, tmp_path: Path) -> None:
    """It clones its layers by deep copies, which once crashed the process."""
    write_training(tmp_path, TORCHS_ENCODER)
    found = paceline_json(
        "run", "train.py", "--dry-run", "-n", "2", f"--{layout}", "2", folder=tmp_path
    )
    assert found["ranks"][0]["memory"]["parameters"] > 0


def test_it_starts_nothing_and_says_what_workers_would_do(tmp_path: Path) -> None:
    write_training(tmp_path, SAYS_MORE)
    done = paceline(
        *("run", "train.py", "--dry-run", "--nodes", "4", "--devices", "2", "--shards", "2"),
        folder=tmp_path,
    )
    assert "242 parameters on 4 nodes with 2 devices each: 4 replicas x 2 shards" in done.stdout
    assert "a worker's share passes as 1 micro-batch of 4" in done.stdout
    assert "all-gather" in done.stdout
    assert "a word of the user's own" not in done.stdout
    assert "a word of the user's own" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_json(tmp_path: Path) -> None:
    write_training(tmp_path, SAYS_MORE)
    found = paceline_json("run", "train.py", "--dry-run", "-n", "4", folder=tmp_path)
    assert (found["nodes"], found["devices_per_node"]) == (1, 4)
    (rank,) = found["ranks"]
    assert rank["bytes_inside_node"] == 4 * 242 == rank["memory"]["gradients"]
    assert rank["bytes_between_nodes"] == 0
    assert rank["transfers"] == [
        {
            "operation": "all-reduce",
            "dimension": "replicas",
            "workers": 4,
            "inside_node": True,
            "bytes": 968,
            "count": 1,
        }
    ]


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (("--nodes", "4"), "--nodes 4 was given, but `paceline run` trains", "paceline submit"),
        (("--devices", "8"), "--devices 8 was given, but `paceline run` trains", "--dry-run"),
        (
            ("--dry-run", "-n", "3", "--nodes", "2", "--devices", "2"),
            "-n 3 was given, but --nodes 2 with --devices 2 are 4 workers",
            "leave -n out",
        ),
        (
            ("--dry-run", "-n", "3", "--nodes", "2"),
            "3 workers cannot be spread evenly over 2 nodes",
            "give --devices",
        ),
        (
            ("--dry-run", "--nodes", "2", "--devices", "2", "--shards", "3"),
            "4 workers cannot be divided into copies of 3",
            "a multiple of 3",
        ),
        (
            ("--dry-run", "--nodes", "2", "--devices", "2", "--replicas", "3"),
            "4 workers were asked for, but the layout plans 3",
            "make them agree",
        ),
        (
            ("--dry-run", "--nodes", "8", "--devices", "8"),
            "the global batch is 32, but there are 64 workers",
            "use at most 32 workers",
        ),
        (
            ("--dry-run", "--pipeline", "4"),
            "4 pipeline stages need as many blocks",
            "use at most",
        ),
    ],
)
def test_mistakes(words: tuple[str, ...], said: str, fix: str, tmp_path: Path) -> None:
    write_training(tmp_path)
    done = paceline("run", "train.py", *words, folder=tmp_path, expect=2)
    assert said in done.stderr
    assert fix in done.stderr.partition("  -> ")[2]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("more", "train", "said"),
    [
        (OWN_LOOP, "train.py:loop", "loop() of train.py has a loop of its own"),
        (OWN_LOOP, "train.py:nothing", "nothing() of train.py returned"),
        (ASKS, "train.py", "in forward: `if x.abs().max() > 3:` reads a tensor's value"),
    ],
)
def test_trainings_that_cannot_be_tried(more: str, train: str, said: str, tmp_path: Path) -> None:
    write_training(tmp_path, more)
    done = paceline("run", train, "--dry-run", "-n", "2", folder=tmp_path, expect=2)
    assert said in done.stderr
