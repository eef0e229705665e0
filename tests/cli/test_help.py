"""Every command explains itself with an example, and speaks to machines."""

import threading

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from paceline.cli import console
from paceline.cli.app import app

COMMANDS = [
    *(["init"], ["help"], ["doctor"], ["probe"], ["plan"], ["check"], ["study"]),
    *(["run"], ["submit"], ["resume"], ["ledger"], ["watch"], ["report"], ["trace"]),
    *(["testbed", verb] for verb in ("up", "down", "status", "link", "stop", "start")),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example_and_the_common_options(command: list[str]) -> None:
    text = CliRunner().invoke(app, [*command, "--help"]).stdout
    assert f"Example:  paceline {' '.join(command)}" in text
    assert "[[" not in text
    assert "--json" in text
    assert "--quiet" in text


@pytest.mark.parametrize(
    ("command", "groups"),
    [
        ("run", ["Options", "Checkpoints", "Job", "Layout", "Output"]),
        ("submit", ["Options", "Cluster", "Checkpoints", "Job", "Layout", "Output"]),
        ("resume", ["Options", "Cluster", "Layout", "Output"]),
        ("plan", ["Model", "Cluster", "Goal and limits", "Output"]),
        ("study", ["Options", "Cluster", "Layout", "Output"]),
    ],
)
def test_help_shows_options_in_groups(command: str, groups: list[str]) -> None:
    lines = CliRunner().invoke(app, [command, "--help"]).stdout.splitlines()
    assert set(groups) <= {line.removesuffix(":") for line in lines if line.endswith(":")}
    for title, option in {"Layout": "--shards", "Output": "--json"}.items():
        if title in groups:
            start = lines.index(f"{title}:")
            end = lines.index("", start) if "" in lines[start:] else len(lines)
            assert any(line.strip().startswith(option) for line in lines[start:end])


def test_no_command_is_forgotten_here() -> None:
    top = get_command(app)
    found = {
        (name, *((sub,) if sub else ()))
        for name, command in top.commands.items()  # type: ignore[attr-defined]
        for sub in (getattr(command, "commands", None) or [""])
    }
    assert found == {tuple(command) for command in COMMANDS} | {("testbed", "exec")}


def test_the_names_of_options_stay() -> None:
    """Scripts lean on these; add to the list, take nothing away."""
    layout = {"--replicas", "--shards", "--micro-batch", "--precision", "--recompute"}
    saving = {"--save-every", "--checkpoints", "--ledger"}
    started = {"--plan", "--runs", "--name", "--port", "--time", "--trace", "--to"}
    started |= layout | saving | {"--power-limit"}
    expected = {
        "probe": {"-o", "-n", "--workers", "--nodes", "--devices", "--partition", "--testbed"},
        "plan": {"--model", "--cluster", "--device", "--nodes", "--batch", "--goal", "--deadline"}
        | {"--calibrate", "--explain", "-o", "--profile", "--steps", "--budget", "--time"},
        "run": {"-n", "--workers"} | started,
        "submit": {"--nodes", "--devices", "--partition", "--memory", "--testbed"}
        | {"--wait", "--dry-run", "--assume-shared"}
        | started,
        "resume": {"-n", "--workers", "--nodes", "--testbed", "--wait"} | layout,
        "report": {"--format", "-o", "--open"},
        "trace": {"-o"},
        "watch": {"--to"},
    }
    for name, options in expected.items():
        text = CliRunner().invoke(app, [name, "--help"]).stdout
        for option in options:
            assert option in text


def test_a_long_wait_says_what_it_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_SILENT_SECONDS", 0.01)
    printed = threading.Event()

    def say(text: str) -> None:
        print(text)
        printed.set()

    monkeypatch.setattr(console, "say", say)
    with console.waiting("the scheduler"):
        assert printed.wait(30)
    assert capsys.readouterr().out == "waiting for the scheduler\n"


def test_a_short_or_quiet_wait_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with console.waiting("nothing"), console.waiting("silence", unless=True):
        assert [each.name for each in threading.enumerate()].count("waiting") == 1
    assert capsys.readouterr() == ("", "")
