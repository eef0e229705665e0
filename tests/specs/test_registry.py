"""Seams: built-in variants are files of a folder, outside ones are entry points."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from paceline.specs import PacelineError
from paceline.specs.registry import Registry


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[str]:
    folder = tmp_path / "variants"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "plain.py").write_text("variant = 'plain'")
    (folder / "wrong.py").write_text("variant = 7")
    (folder / "_shared.py").write_text("raise AssertionError('no variant')")
    (tmp_path / "outsider.py").write_text("variant = 'from outside'")
    monkeypatch.syspath_prepend(str(tmp_path))
    yielded = Registry(
        "flavor", group="paceline.flavors", package="variants", attribute="variant", kind=str
    )
    for name in ("variants", "variants.plain", "variants.wrong", "outsider"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return yielded


def add(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    point = EntryPoint(name, value, "paceline.flavors")
    monkeypatch.setattr("paceline.specs.registry.entry_points", lambda group: [point])


def test_files_are_variants(registry: Registry[str]) -> None:
    assert registry.builtin == ("plain", "wrong")
    assert registry.get("plain") == "plain"
    assert "plain" in registry
    assert "_shared" not in registry


def test_entry_points_are_variants(
    registry: Registry[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(monkeypatch, "other", "outsider:variant")
    assert registry.names == ("plain", "wrong", "other")
    assert registry.get("other") == "from outside"


def test_an_unknown_name_gets_the_nearest(registry: Registry[str]) -> None:
    with pytest.raises(PacelineError, match=r"unknown flavor 'plein'\n.*use 'plain', or one of"):
        registry.get("plein")


def test_a_variant_of_another_kind_is_refused(registry: Registry[str]) -> None:
    with pytest.raises(PacelineError, match=r"'wrong' is a int, not a builtins\.str"):
        registry.get("wrong")


def test_an_outside_variant_does_not_replace_a_builtin(
    registry: Registry[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(monkeypatch, "plain", "outsider:variant")
    with pytest.raises(PacelineError, match="adds the flavor 'plain', which exists"):
        _ = registry.names


def test_an_outside_variant_that_cannot_be_loaded_names_its_package(
    registry: Registry[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(monkeypatch, "broken", "outsider:missing")
    with pytest.raises(PacelineError, match="'broken' of outsider:missing cannot be loaded"):
        registry.get("broken")
