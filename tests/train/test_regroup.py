"""Workers are lost in real runs, and the others go on as if they had not been there."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from command import paceline
from paceline.checkpoints.ledger import read_ledger
from paceline.parallel.fitted_layout import fitted, fitting
from paceline.report import RunReader
from paceline.specs import Layout, Regrouped, Run

pytestmark = pytest.mark.slow

TRAIN = """
import os, signal, time
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import IterableDataset, TensorDataset
import paceline

VICTIM, LAST = int(os.environ.get("VICTIM", "-2")), int(os.environ["STEPS"])
PAUSE = float(os.environ.get("PAUSE", "0"))
# Layers whose output depends on who computes a sample beside which others, if it is asked for.
LAYERS = [nn.BatchNorm1d(32), nn.Dropout(0.1)] if "DRAWS" in os.environ else [nn.Tanh()]


class Samples(TensorDataset):
    def __getitem__(self, number):
        if os.environ["PACELINE_RANK"] == os.environ.get("SLOW"):
            time.sleep(0.01)
        return super().__getitem__(number)


class Stream(IterableDataset):
    def __init__(self, samples):
        self.samples, self.number = samples, 0

    def __iter__(self):
        while self.number < len(self.samples):
            self.number += 1
            yield self.samples[self.number - 1]

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


def model():
    if os.environ["PACELINE_RANK"] == os.environ.get("BUILDS_NOTHING"):
        os.kill(os.getpid(), signal.SIGKILL)
    return nn.Sequential(nn.Linear(12, 32), *LAYERS, nn.Linear(32, 2))


def training():
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(200, 12, generator=generator)
    samples = Samples(inputs, (inputs[:, 0] > 0).long())
    return paceline.Training(
        model=model,
        loss=F.cross_entropy,
        data={"": samples, "stream": Stream(samples), "made": None}[os.environ.get("DATA", "")],
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, LAST),
        batch=30,
        steps=LAST,
    )


def made(trainer):
    while trainer.steps_left:
        inputs = torch.randn(10, 12)
        yield inputs, (inputs[:, 0] > 0).long()


def loop():
    with paceline.start(training()) as trainer:
        for batch in made(trainer) if trainer.training.data is None else trainer:
            out = trainer.step(batch)
            if out.step == 23 and int(os.environ["PACELINE_RANK"]) == VICTIM:
                os.kill(os.getpid(), signal.SIGKILL)
            if out.step == 23 and os.environ["PACELINE_RANK"] == os.environ.get("STANDS_STILL"):
                time.sleep(1000)
            time.sleep(PAUSE)
        trainer.export("weights.safetensors")
"""


def trained(folder: Path, *words: str, steps: int = 60, **environment: Any) -> tuple[Run, Any]:
    """A run of that training, and its last weights."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    options = ("--ledger", "--batch-norm", "local", "--save-every", "0", "--quiet")
    paceline(
        "run", "train.py:loop", *options, *words, folder=folder, STEPS=str(steps), **environment
    )
    (run,) = (folder / "runs").iterdir()
    return Run.open(run), load_file(folder / "weights.safetensors")


def regroups(run: Run) -> list[Regrouped]:
    lines = [line for path in run.events.iterdir() for line in path.read_text().splitlines()]
    found = [json.loads(line) for line in lines]
    return sorted(
        (Regrouped(**each) for each in found if each["kind"] == "regrouped"),
        key=lambda each: each.generation,
    )


def check_story(run: Run) -> None:
    """Every sample of every whole epoch was learnt from once, and the run is told as finished."""
    *whole, last = read_ledger(run.ledger)
    assert all(epoch.exact for epoch in whole)
    assert not last.repeated
    assert not last.incomplete_steps
    state = RunReader(run).refresh()
    assert state.status == "finished"
    assert state.step == list(range(1, state.step[-1] + 1))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("victim", [0, pytest.param(2, marks=pytest.mark.nightly)])
def test_replicas_go_on_with_what_they_hold(tmp_path: Path, victim: int) -> None:
    run, weights = trained(tmp_path / "struck", "-n", "3", VICTIM=str(victim))
    first = regroups(run)[0]
    assert (first.workers, first.lost, first.source) == (2, [victim], "members")
    assert (first.step, first.steps_again) in ((23, 0), (24, 0))
    check_story(run)
    _, undisturbed = trained(tmp_path / "undisturbed", "-n", "3")
    for name, expected in undisturbed.items():
        assert torch.allclose(weights[name], expected, atol=1e-4), name


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_replicas_go_on_in_a_stream(tmp_path: Path) -> None:
    """Passes of 200 samples, in batches of 30, so that batches and passes end at other places."""
    run, weights = trained(tmp_path / "struck", "-n", "3", VICTIM="1", DATA="stream")
    assert (regroups(run)[0].workers, regroups(run)[0].source) == (2, "members")
    (record,) = read_ledger(run.ledger)
    assert (record.by, record.samples, record.exact) == ("stream position", 60 * 30, True)
    _, undisturbed = trained(tmp_path / "undisturbed", "-n", "2", DATA="stream")
    for name, expected in undisturbed.items():
        assert torch.allclose(weights[name], expected, atol=1e-4), name


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_replicas_go_on_with_what_they_make(tmp_path: Path) -> None:
    run, _ = trained(tmp_path / "struck", "-n", "3", VICTIM="1", DATA="made")
    assert regroups(run)[0].workers == 2
    (record,) = read_ledger(run.ledger)
    assert (record.by, record.steps, record.incomplete_steps) == ("made", 60, ())
    # Ten per worker and step: three workers, then two, and three again if a new one joins in time.
    assert 60 * 20 < record.made < 60 * 30


@pytest.mark.timeout(120)
def test_one_that_stands_still_in_its_own_code_is_replaced(tmp_path: Path) -> None:
    words = ("-n", "3", "--faults", "stuck_seconds=2")
    run, _ = trained(tmp_path / "struck", *words, STANDS_STILL="1")
    first = regroups(run)[0]
    assert (first.workers, first.lost, first.source) == (2, [1], "members")
    check_story(run)
    (log,) = run.logs.iterdir()
    assert "no step and no work for" in log.read_text()


@pytest.mark.timeout(120)
def test_shards_go_on_from_their_peers_memory(tmp_path: Path) -> None:
    words = ("--shards", "3", "-n", "3", "--faults", "copy_every=5")
    run, _ = trained(tmp_path / "struck", *words, VICTIM="1")
    first = regroups(run)[0]
    assert (first.workers, first.lost, first.source) == (2, [1], "peers")
    assert first.step in (15, 20)
    assert first.steps_again <= 9
    check_story(run)


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_a_checkpoint_that_is_newer_than_copies_is_taken(tmp_path: Path) -> None:
    words = ("--shards", "3", "-n", "3", "--faults", "copy_every=15", "--save-every", "20")
    run, _ = trained(tmp_path / "struck", *words, VICTIM="1", PAUSE="0.05")
    first = regroups(run)[0]
    assert (first.workers, first.lost, first.source, first.step) == (2, [1], "checkpoint", 20)
    check_story(run)


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_a_lost_server_is_replaced_from_its_peers_memory(tmp_path: Path) -> None:
    words = ("--sync", "stale:staleness=2", "-n", "3", "--faults", "copy_every=5")
    run, _ = trained(tmp_path / "struck", *words, VICTIM="0")
    first = regroups(run)[0]
    assert (first.workers, first.lost, first.source) == (2, [0], "peers")
    check_story(run)


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_a_slow_worker_makes_room_for_one_that_stands_by(tmp_path: Path) -> None:
    run, _ = trained(
        tmp_path / "slow",
        *("-n", "3", "--spares", "1", "--faults", "replace_slow=true,attempts=1"),
        steps=200,
        SLOW="1",
        PAUSE="0.02",
    )
    (only,) = regroups(run)
    assert (only.workers, only.lost, only.joined, only.steps_again) == (3, [1], [2], 0)
    slow = [each for each in RunReader(run).refresh().faults if each.kind == "slow"]
    assert [(each.rank, each.why.split(":")[0]) for each in slow] == [(1, "it waits for its data")]
    check_story(run)


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_the_same_bits_whoever_is_lost_and_comes_back(tmp_path: Path) -> None:
    words, steps = ("--sync", "canonical", "-n", "3"), 300
    exact = {"OMP_NUM_THREADS": "1", "DRAWS": "1"}
    run, weights = trained(
        tmp_path / "struck", *words, steps=steps, VICTIM="1", PAUSE="0.03", **exact
    )
    assert [each.workers for each in regroups(run)] == [2, 3]
    check_story(run)
    _, undisturbed = trained(tmp_path / "undisturbed", *words, steps=steps, **exact)
    assert all(torch.equal(weights[name], expected) for name, expected in undisturbed.items())


@pytest.mark.nightly
@pytest.mark.timeout(120)
@pytest.mark.parametrize("layout", [(), ("--shards", "3")], ids=["replicas", "shards"])
def test_lost_before_anybody_has_a_model(tmp_path: Path, layout: tuple[str, ...]) -> None:
    run, weights = trained(tmp_path / "struck", "-n", "3", *layout, BUILDS_NOTHING="1")
    first = regroups(run)[0]
    # On a busy machine, the process that replaces worker 1 arrives before the others regroup.
    survivors = first.workers - len(first.joined)
    assert (survivors, first.lost, first.source, first.step) == (2, [1], "beginning", 0)
    check_story(run)
    _, undisturbed = trained(tmp_path / "undisturbed", "-n", "3", *layout)
    for name, expected in undisturbed.items():
        assert torch.allclose(weights[name], expected, atol=1e-4), name


UNREACHABLE = """
def unreachable(*given):
    raise RuntimeError("Connection refused by the database")

def broken():
    return dataclasses.replace(training(), WHAT=unreachable)
"""


@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    ("what", "layout"),
    [
        ("loss", ("-n", "2")),
        pytest.param("model", ("-n", "2"), marks=pytest.mark.nightly),
        pytest.param("loss", ("-n", "2", "--shards", "2"), marks=pytest.mark.nightly),
        pytest.param("loss", ("-n", "2", "--pipeline", "2"), marks=pytest.mark.nightly),
        pytest.param("loss", ("-n", "2", "--tensor", "2"), marks=pytest.mark.nightly),
        ("loss", ("-n", "2", "--faults", "regroup=false")),
    ],
    ids=["loss", "model", "shards", "pipeline", "tensor", "fixed"],
)
def test_an_error_of_the_user_is_no_lost_peer(
    tmp_path: Path, what: str, layout: tuple[str, ...]
) -> None:
    more = UNREACHABLE.replace("WHAT", what)
    (tmp_path / "train.py").write_text("import dataclasses\n" + TRAIN + more)
    done = paceline(
        "run", "train.py:broken", *layout, "--quiet", folder=tmp_path, expect=2, STEPS="5"
    )
    assert "Connection refused by the database" in done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    run = Run.open(folder)
    assert not regroups(run)
    assert run.newest_generation in (None, 0)
    assert any(not failure.lost_peer for failure in RunReader(run).refresh().failures)


@pytest.mark.timeout(60)
def test_an_error_of_ones_own_ends_all(tmp_path: Path) -> None:
    more = "\ndef broken():\n    raise RuntimeError('no such thing')\n"
    (tmp_path / "train.py").write_text(TRAIN + more)
    done = paceline(
        "run", "train.py:broken", "-n", "2", "--quiet", folder=tmp_path, expect=1, STEPS="5"
    )
    assert "no such thing" in done.stderr


@pytest.mark.parametrize(
    ("layout", "members", "expected"),
    [
        (Layout(replicas=4), 3, Layout(replicas=3)),
        (Layout(shards=4), 3, Layout(shards=3)),
        (Layout(replicas=2, shards=2), 3, Layout(replicas=1, shards=2)),
        (Layout(replicas=2, pipeline=2, tensor=2), 7, Layout(replicas=1, pipeline=2, tensor=2)),
        (Layout(pipeline=2, shards=2), 3, Layout(pipeline=2, shards=1)),
        (Layout(pipeline=4), 3, None),
    ],
)
def test_the_layout_for_those_who_are_left(
    layout: Layout, members: int, expected: Layout | None
) -> None:
    assert fitted(layout, members) == expected
    assert fitting(layout, members) == (expected.workers if expected else 0)
