"""`make cut` writes a version everywhere, commits and tags it, or says why it does not."""

import subprocess
from pathlib import Path

import pytest
import yaml

from scripts.cut_release import VERSIONS, cut, git, objections, with_version

ROOT = Path(__file__).parents[2]
HOST = 'repository = "https://example.org/team/paceline"'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files of this one that a release changes or reads."""
    for name in [*VERSIONS, "CHANGELOG.md"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    settings = tmp_path / "pyproject.toml"
    settings.write_text(settings.read_text().replace('repository = ""', HOST))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    git(tmp_path, "config", "user.name", "Ada")
    git(tmp_path, "config", "user.email", "ada@example.org")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--message", "start")
    return tmp_path


def test_a_release_is_one_commit_and_a_tag(checkout: Path) -> None:
    assert objections(checkout, "0.2.0") == []
    notes = (checkout / "CHANGELOG.md").read_text().partition("## Unreleased\n")[2]
    cut(checkout, "0.2.0", "2026-12-01")
    assert git(checkout, "describe") == "v0.2.0"
    assert git(checkout, "status", "--porcelain") == ""
    changed = git(checkout, "show", "--name-only", "--format=").split()
    assert sorted(changed) == sorted([*VERSIONS, "CHANGELOG.md"])
    citation = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert (citation["version"], str(citation["date-released"])) == ("0.2.0", "2026-12-01")
    text = (checkout / "CHANGELOG.md").read_text()
    assert text.endswith("## Unreleased\n\n## 0.2.0 - 2026-12-01\n" + notes)


def test_nothing_is_released_twice_or_without_notes(checkout: Path) -> None:
    cut(checkout, "0.2.0", "2026-12-01")
    (checkout / "stray").touch()
    assert objections(checkout, "0.2.0") == [
        "0.2.0 is not newer than the last release, 0.2.0",
        "there are uncommitted changes: commit them",
        "CHANGELOG.md has nothing under Unreleased",
    ]
    assert "is no version" in objections(checkout, "next")[0]


def test_a_release_needs_a_host(checkout: Path) -> None:
    settings = checkout / "pyproject.toml"
    settings.write_text(settings.read_text().replace(HOST, 'repository = ""'))
    git(checkout, "commit", "--all", "--message", "no host")
    (found,) = objections(checkout, "0.2.0")
    assert "where the project is hosted" in found


@pytest.mark.parametrize("name", VERSIONS)
def test_all_files_name_one_version(name: str) -> None:
    """Writing the version that they have changes nothing."""
    version = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    text = (ROOT / name).read_text()
    assert with_version(text, VERSIONS[name], version) == text
