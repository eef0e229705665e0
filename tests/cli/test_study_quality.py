"""`paceline study --kind quality` as a user runs it."""

import tomllib
from pathlib import Path

import pytest

from command import EXAMPLES, paceline, paceline_json, write_training
from ranks import new_run

DIGITS = str(EXAMPLES / "digits" / "train.py")
EVALUATES = """
def evaluates():
    with paceline.start(training()) as trainer:
        for batch in trainer:
            trainer.step(batch)
        hits = lambda output, target: (output.argmax(1) == target).float().mean()
        trainer.evaluate(data(), metrics={"hits": hits})
"""


@pytest.mark.nightly
def test_two_workers_learn_the_same(tmp_path: Path) -> None:
    write_training(tmp_path, EVALUATES)
    words = ["study", "train.py:evaluates", "--kind", "quality", "--workers", "1,2"]
    words += ["--out", "s", "--at-once", "2"]
    done = paceline(*words, "--seeds", "1", folder=tmp_path, seconds=400)
    assert "2 workers: loss one seed is too few; evaluated loss one seed" in done.stdout
    # The same study goes on: what it has is used again, and it may judge otherwise.
    runs = tmp_path / "s" / "runs"
    before = {path.name for path in runs.iterdir()}
    more = ["--seeds", "2", "--margin", "0.02"]
    found = paceline_json(*words, *more, folder=tmp_path, seconds=400)
    new = [path for path in runs.iterdir() if path.name not in before]
    assert len(before) == len(new) == 2
    assert {tomllib.loads((path / "job.toml").read_text())["seed_plus"] for path in new} == {1}
    assert (found["study"]["steps"], found["study"]["margin"]) == (0, 0.02)
    base, two = found["quality"]["points"]
    assert [run["seed_plus"] for run in base["runs"]] == [0, 1]
    # Twenty steps of 32; of 200 samples, the seventh has what is left.
    assert {run["samples"] for each in (base, two) for run in each["runs"]} == {592}
    # Seeds differ, and both numbers of workers have the same.
    first, second = (run["values"]["loss"] for run in base["runs"])
    assert abs(first - second) > 1e-3
    assert [each["measure"] for each in two["comparisons"]] == ["loss", "evaluated loss", "hits"]
    for each in two["comparisons"]:
        assert (each["verdict"], each["seeds"]) == ("same", 2)
        assert abs(each["difference"]["value"]) < 1e-4
    assert found["findings"][-1].startswith("2 workers: loss the same within ±")
    assert "Loss over samples" in (tmp_path / "s" / "report.html").read_text()
    paceline("report", "s", "--format", "csv", folder=tmp_path)
    assert len((tmp_path / "report.csv").read_text().splitlines()) == 1 + 3


@pytest.mark.nightly
def test_larger_batches_see_as_many_samples(tmp_path: Path) -> None:
    write_training(tmp_path)
    found = paceline_json(
        *("study", "train.py", "--kind", "quality", "--workers", "1", "--seeds", "2"),
        *("--vary", "batch=1,4", "--vary", "lr=naive,scaled", "--at-once", "2", "--out", "s"),
        folder=tmp_path,
        seconds=300,
    )
    varied = [each["point"]["varied"] for each in found["points"]]
    rates = [{"batch": "4", "lr": "naive"}, {"batch": "4", "lr": "scaled"}]
    assert varied == [{}, *rates]
    assert [each["runs"][0]["batch"] for each in found["points"]] == [32, 128, 128]
    base, naive, scaled = found["quality"]["points"]
    assert {run["samples"] for run in base["runs"]} == {592}
    assert {run["samples"] for each in (naive, scaled) for run in each["runs"]} == {600}
    # A quarter of the steps at the same rate get less far; at four times the rate they get on.
    assert naive["comparisons"][0]["difference"]["value"] > 0
    losses = [each["comparisons"][0]["value"]["value"] for each in (naive, scaled)]
    assert losses[1] < losses[0]


@pytest.mark.nightly
def test_larger_batches_from_a_checkpoint(tmp_path: Path) -> None:
    """A batch study could only train from the beginning."""
    write_training(tmp_path)
    paceline("run", "train.py", "--save-every", "5", "--name", "whole", folder=tmp_path)
    (source,) = (tmp_path / "runs").iterdir()
    words = ["study", "train.py", "--workers", "1", "--kind", "batch", "--out", "s"]
    words += ["--vary", "batch=2,4", "--seeds", "2", "--at-once", "2", "--ledger"]
    found = paceline_json(*words, "--from", f"{source}@15", folder=tmp_path, seconds=400)
    # Five of the 20 steps are left, with 168 samples in the epoch: larger batches fill their last.
    points = found["quality"]["points"]
    samples = [[run["samples"] for run in each["runs"]] for each in points]
    assert samples == [[160] * 2, [168] * 2, [168] * 2]
    assert found["study"]["starts_from"]["step"] == 15
    assert any("step 15 of whole-" in each for each in found["findings"])
    for run in (tmp_path / "s" / "runs").iterdir():
        paceline("ledger", run, folder=tmp_path)
    # Another checkpoint would be another study.
    done = paceline(*words, "--from", source, folder=tmp_path, expect=2)
    assert "has a study with starts_from = " in done.stderr


def test_checkpoints_that_no_study_can_start_from(tmp_path: Path) -> None:
    source = new_run(tmp_path / "runs", 1).path
    words = ["study", DIGITS, "--workers", "1", "--kind", "batch", "--from"]
    done = paceline(*words, str(source), folder=tmp_path, expect=2)
    assert "the run has no checkpoints" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kind", "quality", "--margin", "2"], "--margin 2 is not between 0 and 1"),
        (["--margin", "0.1"], "--margin 0.1 needs --kind quality or batch, but the kind is strong"),
        (["--from", "runs/a@3"], "--from runs/a@3 needs --kind batch, but the kind is strong"),
        (["--vary", "lr=scaled"], "is not KEY=A,B with a key that can vary"),
        (["--kind", "quality", "--vary", "lr=big"], "lr=big is neither naive nor scaled"),
        (["--kind", "quality", "--vary", "lr=scaled"], "no point has a larger batch"),
        (
            [*("--kind", "quality", "--vary", "lr=scaled", "--vary", "batch=8"), "--sync", "stale"],
            "lr=scaled was given together with sync=stale",
        ),
    ],
)
def test_mistakes(tmp_path: Path, words: list[str], said: str) -> None:
    done = paceline("study", DIGITS, "--workers", "2", *words, folder=tmp_path, expect=2)
    assert said in done.stderr
    assert "\n  -> " in done.stderr
