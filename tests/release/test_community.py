"""Forms, workflows and the citation follow their published schemas, which check-jsonschema has."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCHEMAS = {
    "vendor.citation-file-format": ["CITATION.cff"],
    "vendor.github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
    "vendor.github-issue-forms": [".github/ISSUE_TEMPLATE/[!c]*.yml"],
    "vendor.github-workflows": [".github/workflows/*.yml"],
    "vendor.dependabot": [".github/dependabot.yml"],
}
PAGES = [
    *("CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "GOVERNANCE.md", "RELEASING.md"),
    *("SECURITY.md", "SUPPORT.md", "CHANGELOG.md"),
]


def check(schema: str, *files: Path) -> "subprocess.CompletedProcess[str]":
    module = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    return subprocess.run([*module, *files], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_follow_their_schemas(schema: str) -> None:
    files = [file for pattern in SCHEMAS[schema] for file in ROOT.glob(pattern)]
    assert files
    done = check(schema, *files)
    assert done.returncode == 0, done.stdout


def test_a_form_with_an_unknown_field_is_found(tmp_path: Path) -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text())
    form["body"][1]["type"] = "text"
    (tmp_path / "form.yml").write_text(yaml.safe_dump(form))
    assert check("vendor.github-issue-forms", tmp_path / "form.yml").returncode == 1


def test_the_citation_is_of_this_project() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["license"] == project["license"]
    assert citation["keywords"] == project["keywords"]
    assert citation["authors"] == project["authors"]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)(#\S+)?\)", (ROOT / name).read_text()):
        assert (ROOT / target[0]).exists(), target


@pytest.mark.parametrize("name", ["SUPPORT.md", "docs/reproduce.md"])
def test_forms_that_are_named_exist(name: str) -> None:
    forms = {
        yaml.safe_load(file.read_text())["name"]
        for file in (ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")
    }
    text = " ".join((ROOT / name).read_text().split())
    named = set(re.findall(r'form "([^"]+)"', text))
    assert named
    assert named <= forms
