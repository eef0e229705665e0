"""What a package index shows: links that work there, and versions that the workflows try."""

import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
import yaml

import paceline
from scripts.package_metadata import project_urls, readme_for_index

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HOST = "https://example.org/team/paceline"
TARGET = re.compile(r"\]\(([^)\s]+)\)")


def test_links_of_the_readme_lead_to_the_files_of_the_release() -> None:
    text = (ROOT / "README.md").read_text()
    before = TARGET.findall(text)
    after = TARGET.findall(readme_for_index(text, HOST, "0.2.0"))
    assert len(after) == len(before) > 20
    for old, new in zip(before, after, strict=True):
        kind = "raw" if old.endswith((".png", ".svg")) else "blob"
        assert new == (old if "://" in old else f"{HOST}/{kind}/v0.2.0/{old}")
    assert "<!--" not in readme_for_index(text, HOST, "0.2.0")


def test_without_a_host_the_readme_has_no_dead_links() -> None:
    text = readme_for_index((ROOT / "README.md").read_text(), "", "0.2.0")
    assert [each for each in TARGET.findall(text) if "://" not in each] == []
    assert "Paceline is tested on CPUs" in text
    assert "Getting started explains each step" in text
    assert project_urls("") == {}


def test_the_urls_are_of_files_that_exist() -> None:
    for url in project_urls(HOST).values():
        _, is_file, path = url.partition("/blob/main/")
        assert not is_file or (ROOT / path).exists()


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Message:
    """Of a wheel that is built from this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_a_wheel_says_what_pyproject_says(metadata: Message) -> None:
    assert metadata["Version"] == paceline.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Paceline takes a PyTorch model" in metadata.get_payload()
    assert set(metadata.get_all("Classifier", [])) == set(PROJECT["classifiers"])
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


def test_the_wheel_is_tried_on_every_python_that_it_names() -> None:
    named = [
        each.removeprefix("Programming Language :: Python :: ")
        for each in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
    ]
    assert PROJECT["requires-python"] == f">={named[0]}"
    workflow = yaml.safe_load((ROOT / ".github/workflows/wheel.yml").read_text())
    assert workflow["jobs"]["wheel"]["strategy"]["matrix"]["python"] == named


def test_the_changelog_keeps_its_form() -> None:
    """As keepachangelog.com has it: versions, newest first, and six kinds of changes."""
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+\S* - \d{4}-\d\d-\d\d", each) for each in versions[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds
    for part in text.split("\n## ")[1:]:
        used = re.findall(r"^### (.+)$", part, re.MULTILINE)
        assert len(used) == len(set(used))
