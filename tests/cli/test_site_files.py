"""Site files: one place for what a site's jobs have in common."""

import os
import re
import tomllib
from pathlib import Path

import pytest
import typer

from command import paceline, paceline_json, write_training
from paceline.cli.app import app
from paceline.specs.site_file import SiteFile

GPT = "gpt: layers=12 width=768 heads=12 seq=1k vocab=50304"

DRY = ("submit", "train.py", "--dry-run", "--scheduler", "slurm", "--assume-shared")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "settings" / "paceline").mkdir(parents=True)
    write_training(tmp_path)
    return tmp_path


def site(home: Path, text: str, *, users: bool = False) -> Path:
    file = home / ("settings/paceline" if users else "") / "site.toml"
    file.write_text(text)
    file.chmod(0o644)
    return file


def script(home: Path, *words: str) -> tuple[str, str]:
    """The batch script of a dry run, and what was said."""
    done = paceline(*DRY, *words, folder=home)
    return done.stdout, done.stderr


def refused(home: Path, *words: str) -> str:
    done = paceline(*DRY, *words, folder=home, expect=2)
    assert "Traceback" not in done.stderr
    return done.stderr


def test_later_files_and_the_command_line_win(home: Path) -> None:
    site(
        home,
        '[options]\naccount = "staff"\nqos = "long"\nruns = "$SCRATCH/runs"\n'
        'setup = ["cd $SCRATCH"]\n',
    )
    site(home, '[options]\naccount = "mine"\n[options.submit]\nnodes = 3\n', users=True)
    written, said = script(home)
    assert "--account=mine" in written
    assert "--qos=long" in written
    assert "--nodes=3" in written
    assert str(home / "scratch" / "runs") in written
    assert "\ncd $SCRATCH\n" in written
    assert "site.toml sets --account --qos --runs --setup" in said
    written, said = script(home, "--account", "today", "--qos", "short")
    assert "--account=today" in written
    assert "site.toml sets --runs --setup" in said
    extra = home / "extra.toml"
    extra.write_text('[options]\naccount = "extra"\n')
    extra.chmod(0o600)
    assert "--account=extra" in script(home, "--site", "extra.toml")[0]


def test_a_testbed_is_another_cluster(home: Path) -> None:
    site(home, '[options]\naccount = "staff"\n')
    done = paceline("submit", "train.py", "--testbed", "none", folder=home, expect=2)
    assert "site.toml" not in done.stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[options]\nacount = "x"\n', "'acount', which is no option"),
        ('[options.sbumit]\naccount = "x"\n', "'sbumit', which is no option"),
        ('[options.submit]\nmodel = "x"\n', "'model', which is no option"),
        ('[options]\nnodes = "many"\n', "a site file sets nodes to 'many'"),
        ('[options]\nruns = "$NOWHERE_TO_BE_FOUND/runs"\n', "that variable is not set"),
        ("[prices]\nper_hour = 1\n", "not a valid sitefile"),
        ("[options\n", "not valid TOML"),
    ],
)
def test_mistakes_name_the_file(home: Path, text: str, problem: str) -> None:
    site(home, text)
    said = refused(home)
    assert problem in said


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_can_write_is_not_read(home: Path, mode: int) -> None:
    """Jobs run what it says."""
    site(home, '[options]\naccount = "staff"\n').chmod(mode)
    assert "other users can write" in refused(home)


@pytest.mark.root
def test_only_the_user_and_root_are_trusted(home: Path) -> None:
    file = site(home, '[options]\naccount = "staff"\n')
    os.chown(file, 12345, 12345)
    assert "belongs to user 12345" in refused(home)


def test_sites_are_compared_by_their_files(home: Path) -> None:
    plan = '[options.plan]\ndevice = "a100-80gb"\nnodes = "4"\n'
    for name, hour in (("own", 10), ("cloud", 30)):
        file = home / f"{name}.toml"
        file.write_text(f'{plan}[prices]\nper_node_hour = {hour}\nsource = "a test"\n')
        file.chmod(0o600)
    words = ("plan", "--model", GPT, "--batch", "512", "--steps", "100")
    found = paceline_json(*words, "--compare", "own.toml,cloud.toml", folder=home)
    assert [row["site"] for row in found["rows"]] == ["own", "cloud"]
    assert found["rows"][0]["break_even_per_node_hour"] == pytest.approx(30)
    shown = paceline(*words, "--compare", "own.toml,cloud.toml", folder=home)
    assert "own is the cheapest as long as its node-hour costs less than 30.00" in shown.stdout
    for given in (("--nodes", "2"), ("--price", "5"), ("--queue",), ("--device", "h100-80gb")):
        compared = (*words, *given, "--compare", "own.toml,cloud.toml")
        said = paceline(*compared, folder=home, expect=2).stderr
        assert f"{given[0]} was given with --compare" in said
    priced = paceline_json(*words, "--site", "own.toml", "--price", "20", folder=home)
    hours = priced["training"]["device_hours"] / 8
    assert priced["training"]["money"] == pytest.approx(20 * hours)


def test_the_files_on_the_page_are_valid() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sites.md").read_text()
    files = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {name: {each.name for each in command.params} for name, command in commands.items()}
    assert len(files) > 5
    for text in files:
        written = SiteFile.checked(tomllib.loads(text), Path("docs/sites.md"))
        for key, value in written.options.items():
            if isinstance(value, dict):
                assert value.keys() <= options[key]
            else:
                assert any(key in names for names in options.values()), key


def test_the_table_on_the_page_is_what_is_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sites.md").read_text()
    for name, text in re.findall(r"<!-- file: (\S+) -->\n```toml\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(text)
    words = ("plan", "--model", "llama3-8b", "--batch", "1024", "--steps", "10000", "--compare")
    shown = paceline(*words, "own.toml,cloud.toml,booked.toml", folder=tmp_path)
    (printed,) = re.findall(r"```text\n  site (.*?)```", page, re.DOTALL)
    rows = [line.split() for line in printed.splitlines()[2:6]]
    assert len(rows) == 4
    assert [line.split() for line in shown.stdout.splitlines() if line.split() in rows] == rows
