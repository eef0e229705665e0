"""Each command's `--json` has the form that its JSON schema describes, and says which.

`paceline_json` checks this in every other test, too.
"""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import json_form
from command import CLUSTER, paceline, paceline_json, write_training
from paceline.cli.console import print_json
from paceline.cli.outputs.schemas import json_schema
from paceline.cli.outputs.versions import VERSIONS
from paceline.conformance.report import CheckResult, ConformanceReport

MODEL = ("--model", "gpt: layers=2 width=64 heads=4 seq=64 vocab=100", "--batch", "8")
PRICES = (
    "[prices]\nper_node_hour = 1.0\nsource = 'a test'\n[options.plan]\ncluster='cluster.toml'\n"
)
NAMES = {
    "check": {"same", "findings"},
    "doctor": {"findings"},
    "error": {"error", "fix", "topic"},
    "help": {"topic", "title", "text"},
    "init": {"file"},
    "ledger": {"exact", "epochs"},
    "plan": {"model", "nodes", "estimate", "alternatives", "curve"},
    "probe": {"file", "run", "seconds", "cluster"},
    "report.comparison": {"runs", "equal_samples", "fastest", "lowest_loss", "differs"},
    "run": {"name", "status", "steps", "samples", "seconds", "final_loss", "faults", "usage"},
    "run.dry-run": {"layout", "ranks", "parameters", "batch"},
    "study": {"study", "points", "findings"},
    "submit": {"run", "job", "workers", "waits_for", "estimated_start"},
    "testbed.status": {"name", "head_address", "nodes"},
    "trace": {"trace", "workers"},
}
"""Scripts lean on these; add to the list, take nothing away without a new version."""


def form(*words: str | Path, folder: Path, expect: int = 0, **environment: Any) -> str:
    """The name of the form that a command prints, after checking what it printed."""
    done = paceline(*words, "--json", folder=folder, expect=expect, **environment)
    printed = json.loads(done.stdout)
    json_form.checked(printed)
    return json_form.name_of(printed)


def test_each_form_has_a_schema_that_is_one() -> None:
    for name in VERSIONS:
        for closed in (True, False):
            jsonschema.Draft202012Validator.check_schema(json_schema(name, closed=closed))


def test_the_names_of_fields_stay() -> None:
    for name, fields in NAMES.items():
        assert fields <= json_schema(name)["properties"].keys(), name


def test_a_missing_a_wrong_and_an_unknown_field_are_found() -> None:
    good: dict[str, Any] = {"schema": "paceline.init/1", "file": "train.py"}
    json_form.checked(good)
    for wrong in ({"file": 3}, {"other": 1}, {"schema": "paceline.help/1"}):
        with pytest.raises(jsonschema.ValidationError):
            json_form.checked(good | wrong)
    jsonschema.validate(good | {"other": 1}, json_schema("init"))  # published: fields may be added


def test_numbers_that_are_not_finite_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"seconds": math.inf, "losses": [math.nan, 1.0]}, "run")
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"schema": "paceline.run/1", "seconds": None, "losses": [None, 1.0]}


def test_short_commands(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text(PRICES)
    compared = ("plan", *MODEL, "--compare", "a.toml,b.toml", "--steps", "10")
    assert form("help", folder=tmp_path) == "help.topics"
    assert form("help", "batch", folder=tmp_path) == "help"
    assert form("init", folder=tmp_path) == "init"
    assert form("init", folder=tmp_path, expect=2) == "error"
    assert form("init", "--nonsense", folder=tmp_path, expect=2) == "error"
    assert form("nonsense", folder=tmp_path, expect=2) == "error"
    assert form("plan", *MODEL, "--cluster", "cluster.toml", folder=tmp_path) == "plan"
    assert form(*compared, folder=tmp_path) == "plan.compare"
    # Other tests of this session may have testbeds up; here is none.
    alone: dict[str, Any] = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert form("doctor", "--site", folder=tmp_path, **alone) == "doctor.site"


def test_a_report_of_devices(tmp_path: Path) -> None:
    result = CheckResult(name="a", state="passed", figure="1", figures={"b": [1]}, seconds=1.0)
    today = datetime.now(UTC).date()
    report = ConformanceReport(date=today, nodes=1, devices_per_node=1, checks=(result,))
    report.write(tmp_path / "devices.json")
    assert form("doctor", "--verify", "devices.json", folder=tmp_path) == "doctor.devices"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_training_and_what_looks_at_it(tmp_path: Path) -> None:
    write_training(tmp_path)
    assert form("check", "train.py", folder=tmp_path) == "check"
    assert form("run", "train.py", "--dry-run", folder=tmp_path) == "run.dry-run"
    words = ("run", "train.py", "--ledger", "--trace", "2", "--runs", ".", "--name")
    paceline(*words, "one", "-n", "2", "--quiet", folder=tmp_path)
    (one,) = tmp_path.glob("one-*")
    assert form("watch", one, folder=tmp_path) == "run"
    assert form("report", one, folder=tmp_path) == "run"
    assert form("ledger", one, folder=tmp_path) == "ledger"
    assert form("trace", one, folder=tmp_path) == "trace"
    assert form(*words, "two", folder=tmp_path) == "run"
    (two,) = tmp_path.glob("two-*")
    assert form("report", one, two, folder=tmp_path) == "report.comparison"


@pytest.mark.slow
def test_a_run_that_fails_prints_one_object(tmp_path: Path) -> None:
    write_training(tmp_path, "\nwhole = training\ndef training():\n    raise ValueError('no')\n")
    printed = paceline("run", "train.py", "--no-check", "--json", folder=tmp_path, expect=1).stdout
    assert json_form.checked(json.loads(printed))["status"] == "failed"


@pytest.mark.nightly
@pytest.mark.timeout(500)
def test_long_commands(tmp_path: Path) -> None:
    write_training(tmp_path)
    study = ("study", "train.py", "-n", "1", "--repeat", "1", "--steps", "12", "--warm-up", "2")
    assert form(*study, folder=tmp_path) == "study"
    assert form("report", "studies/train-strong", folder=tmp_path) == "study"
    assert form("probe", "-n", "2", folder=tmp_path) == "probe"
    assert form("probe", "train.py", "--learning", "--steps", "40", folder=tmp_path) in (
        *("probe.learning", "error"),
    )


@pytest.mark.slurm
@pytest.mark.timeout(300)
def test_a_cluster(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder)
    at = ("--name", cluster)
    assert form("testbed", "status", *at, folder=shared_folder) == "testbed.status"
    link = ("testbed", "link", "n2", "--rate", "1gbit", *at)
    assert form(*link, folder=shared_folder) == "testbed.node"
    submit = ("submit", "train.py", "--nodes", "1", "--testbed", cluster)
    job = paceline_json(*submit, folder=shared_folder)
    paceline("watch", job["run"], "--quiet", folder=shared_folder)
    (shared_folder / "sweep.csv").write_text("lr\n0.1\n")
    assert form(*submit, "--array", "sweep.csv", folder=shared_folder) == "submit.array"


@pytest.mark.slurm
@pytest.mark.nightly
def test_a_testbed_of_its_own(shared_folder: Path) -> None:
    at = ("--name", "forms")
    assert form("testbed", "up", "--nodes", "1", *at, folder=shared_folder) == "testbed.up"
    assert form("testbed", "down", *at, folder=shared_folder) == "testbed.down"
