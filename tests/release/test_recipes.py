"""The recipes for conda and Spack need what pyproject.toml needs. Neither program runs here."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import paceline

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"torch": "pytorch"}


def wanted(texts: list[str]) -> dict[str, str]:
    """The packages of requirements and their versions, in order."""
    requirements = map(Requirement, texts)
    return {each.name: str(each.specifier) for each in requirements}


def in_order(versions: str) -> list[str]:
    return sorted(versions.split(","))


def test_conda_needs_the_same() -> None:
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    run = dict(text.split(" ", 1) for text in recipe["requirements"]["run"])
    assert run.pop("python") == PROJECT["requires-python"]
    needed = wanted(PROJECT["dependencies"])
    assert {name: in_order(each) for name, each in run.items()} == {
        CONDA_NAMES.get(name, name): in_order(each) for name, each in needed.items()
    }
    assert recipe["context"]["version"] == paceline.__version__
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {each}" for name, each in PROJECT["scripts"].items()
    ]


def spack_calls(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The first argument and the options of each call of a directive in Spack's recipe."""
    tree = ast.parse((ROOT / "packaging/spack/package.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            assert isinstance(node.args[0], ast.Constant)
            options: dict[str, Any] = {
                str(each.arg): each.value.value
                for each in node.keywords
                if isinstance(each.value, ast.Constant)
            }
            yield str(node.args[0].value), options


def as_spack(name: str, versions: str) -> str:
    """`torch` and `<2.14,>=2.12` as `py-torch@2.12:2.13`: Spack's ranges include their ends."""
    bounds = {str(each)[0]: re.sub("[<>=]", "", str(each)) for each in versions.split(",")}
    newest = ""
    if "<" in bounds:
        major, minor = bounds["<"].split(".")
        newest = f"{major}.{int(minor) - 1}"
    return f"py-{name}@{bounds['>']}:{newest}"


@pytest.mark.parametrize("extra", [None, "report", "parquet", "s3"])
def test_spack_needs_the_same(extra: str | None) -> None:
    when = f"+{extra}" if extra else None
    found = {
        spec.removesuffix("+distributed")
        for spec, options in spack_calls("depends_on")
        if options.get("when") == when and spec.startswith("py-") and "hatchling" not in spec
    }
    needed = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    assert found == {as_spack(name, versions) for name, versions in wanted(needed).items()}


def test_spack_has_the_version_and_an_extra_for_each_variant() -> None:
    assert [version for version, _ in spack_calls("version")] == [paceline.__version__]
    assert {name for name, _ in spack_calls("variant")} <= set(PROJECT["optional-dependencies"])
    python = f"python@{PROJECT['requires-python'].removeprefix('>=')}:"
    assert python in {spec for spec, _ in spack_calls("depends_on")}
