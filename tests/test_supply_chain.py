"""What the checks and releases run is pinned, and the ends of torch's range are tested."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def needed(extra: str) -> Iterator[Requirement]:
    """Every requirement of Paceline with an extra, and with those that the extra includes."""
    for text in PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            for included in requirement.extras:
                yield from needed(included)
        else:
            yield requirement


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit(workflow: Path) -> None:
    # A workflow of this repository, by its path, is that of the same commit.
    used = re.findall(r"^\s*(?:- )?uses: (?!\./)(.+)$", workflow.read_text(), re.MULTILINE)
    assert used
    assert [each for each in used if not PINNED.fullmatch(each)] == []


def test_the_checks_install_hashed_packages() -> None:
    lock = (ROOT / "requirements/ci.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==([^ ]+)", lock, re.MULTILINE))
    entries = re.split(r"^(?=[\w.-]+==)", lock, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    wanted = [*map(Requirement, PROJECT["dependencies"]), *needed("dev")]
    unmet = [
        str(each)
        for each in wanted
        if each.name != "torch"
        and not each.specifier.contains(pinned.get(canonicalize_name(each.name), "0"))
    ]
    assert unmet == [], "run `make lock`"


def test_the_ends_of_the_range_of_torch_are_tested() -> None:
    workflow = (ROOT / ".github/workflows/torch-range.yml").read_text()
    found = re.search(r"^ +torch: \[(.+)\]$", workflow, re.MULTILINE)
    assert found
    oldest, newest = (each.strip('" ') for each in found[1].split(","))
    (declared,) = (text for text in PROJECT["dependencies"] if text.startswith("torch"))
    major, minor, _ = newest.split(".")
    after_newest = f"{major}.{int(minor) + 1}"
    assert declared == f"torch>={oldest.removesuffix('.0')},<{after_newest}"
    usual = Requirement((ROOT / "constraints.txt").read_text().strip())
    assert all(Requirement(declared).specifier.contains(each.version) for each in usual.specifier)
