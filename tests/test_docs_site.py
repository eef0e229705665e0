"""The pages as a site: its navigation, what it loads, its search; and the page of fields."""

import ast
import dataclasses
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import paceline
from browser import CHROMIUM, browser

ROOT = Path(__file__).parent.parent
FIELDS_PAGE = ROOT / "docs" / "how-to" / "training-fields.md"
KINDS = ("Tutorials", "How-to guides", "Reference", "Explanation")
LOADED = re.compile(
    r"""<(?:script|img|iframe|link rel=["']?stylesheet)\b[^>]*?(?:src|href)=["']?"""
    r"""((?:https?:)?//[^"' >]+)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
        timeout=100,
    )
    return folder


def pages_in(nav: Any) -> list[str]:
    """The pages of a part of the navigation."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages_in(part)]


def test_every_page_has_one_place() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    # Those of the reference are made at build; tests/test_reference.py compares them.
    placed = sorted(page for page in pages_in(settings["nav"]) if not page.startswith("reference/"))
    docs = ROOT / "docs"
    assert placed == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))
    titles = [title for part in settings["nav"] for title in part]
    assert [title for title in titles if title in KINDS] == list(KINDS)


@pytest.mark.slow
def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    loaded = {
        address for page in site.rglob("*.html") for address in LOADED.findall(page.read_text())
    }
    assert loaded == set()
    assert LOADED.findall('<script async src="https://host/x.js"></script>') == [
        "https://host/x.js"
    ]
    assert not any("```mermaid" in page.read_text() for page in (ROOT / "docs").rglob("*.md")), (
        "the theme draws these with a script of another host"
    )


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(
    CHROMIUM is None and "PACELINE_TEST_ALL" not in os.environ, reason="needs Chromium"
)
def test_search_finds_a_page_without_a_server(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as chromium:
        chromium.show(site / "index.html")
        chromium.value("document.querySelector('[data-md-toggle=search]').click()")
        chromium.value(
            """(query => {
              query.focus();
              query.value = "straggler";
              query.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
              query.dispatchEvent(new Event("input", { bubbles: true }));
            })(document.querySelector("[data-md-component=search-query]"))"""
        )
        first = "document.querySelector('.md-search-result__item a')?.href"
        end = time.monotonic() + 20
        while (found := chromium.value(first)) is None:
            assert time.monotonic() < end, "no results"
            time.sleep(0.05)
    assert found.startswith((site / "watching.html").as_uri())


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(
    CHROMIUM is None and "PACELINE_TEST_ALL" not in os.environ, reason="needs Chromium"
)
def test_home_shows_code_and_a_picture_on_its_first_screen(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as chromium:
        chromium.show(site / "index.html", width=1280, height=800)
        for seen in (".hero pre", ".hero img", ".hero .md-button"):
            bottom = f"document.querySelector('{seen}').getBoundingClientRect().bottom"
            assert chromium.value(bottom) < 800, seen
        chromium.show(site / "index.html", width=390, height=844)
        wide = chromium.value("document.documentElement.scrollWidth")
        assert wide <= 390, "the page scrolls sideways"


def sections(page: Path) -> dict[str, str]:
    """Text by the field that its heading names."""
    parts = re.split(r"^## `(\w+)`\n", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def keywords(code: str) -> set[str]:
    """The fields that code gives to a Training."""
    calls = [each for each in ast.walk(ast.parse(code)) if isinstance(each, ast.Call)]
    return {
        word.arg
        for call in calls
        if ast.unparse(call.func) == "paceline.Training"
        for word in call.keywords
        if word.arg is not None
    }


def test_each_field_of_training_has_a_section_with_an_example() -> None:
    fields = [field.name for field in dataclasses.fields(paceline.Training)]
    found = sections(FIELDS_PAGE)
    assert sorted(found) == sorted(fields)
    for field, text in found.items():
        code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
        assert field in keywords(code), f"no example of {field}"
        assert keywords(code) <= set(fields)


@pytest.mark.parametrize(
    ("kind", "page"),
    [(paceline.Phase, "phases.md"), (paceline.Validation, "metrics.md")],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_each_field_of_a_part_is_on_its_page(kind: Any, page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    fields = [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    assert [field for field in fields if f"`{field}`" not in text and f"{field}=" not in text] == []
