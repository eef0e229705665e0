"""The ResNet example, validated on one and two workers. A minute long."""

from pathlib import Path

import pytest

from command import EXAMPLES, paceline, paceline_json

SHORT = ("--", "--epochs", "2", "--samples", "512")


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_it_validates_alike_on_one_and_two_workers(tmp_path: Path) -> None:
    train = EXAMPLES / "resnet" / "train.py"
    found = []
    for workers in ("1", "2"):
        name = ("--name", f"on-{workers}", "--quiet")
        options = ("-n", workers, "--batch-norm", "synchronized", *name)
        paceline("run", train, *options, *SHORT, folder=tmp_path, seconds=300)
        (run,) = (tmp_path / "runs").glob(f"on-{workers}-*")
        assert (run / "best.safetensors").exists()
        found.append(paceline_json("report", run, folder=tmp_path)["metrics"])
    for metric in ("validation/loss", "validation/accuracy"):
        one, two = ([each[metric][key] for key in ("last", "highest")] for each in found)
        assert two == pytest.approx(one, rel=1e-3)
    assert found[0]["validation/accuracy"]["count"] == 2, "one validation per epoch"
