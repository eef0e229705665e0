"""The docs of several versions are published beside each other, in a clone; nothing is pushed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_two_versions_are_published(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    git(clone, "config", "user.name", "Ada")
    git(clone, "config", "user.email", "ada@example.org")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for version in ("0.1", "0.2"):
        subprocess.run(
            ["mike", "deploy", "--update-aliases", version, "latest"],
            cwd=clone,
            env=os.environ | {"PATH": path, "NO_MKDOCS_2_WARNING": "1"},
            check=True,
        )
    versions = json.loads(git(clone, "show", "gh-pages:versions.json"))
    assert [(each["version"], each["aliases"]) for each in versions] == [
        ("0.2", ["latest"]),
        ("0.1", []),
    ]
    for folder in ("0.1", "0.2", "latest"):
        assert "Paceline" in git(clone, "show", f"gh-pages:{folder}/index.html")
