"""The tables of docs/papers and docs/recipes.md are those that their commands print."""

import re
from pathlib import Path

import pytest

from benchmarks.planner.pages import papers, recipes
from benchmarks.planner.score.cases import DATA

PAPERS = papers.FOLDER


def tables_on(page: Path, topic: str) -> dict[str, str]:
    """The tables between their markers."""
    found = re.findall(rf"<!-- {topic}: (.+?) -->\n(.*?)<!-- end -->", page.read_text(), re.DOTALL)
    return {name: text.strip() for name, text in found}


def test_the_pages_have_what_the_planner_computes() -> None:
    """If not: `python -m benchmarks.planner.pages.papers --write`, and read what changed."""
    for page, tables in papers.computed().items():
        on_page = tables_on(PAPERS / page, papers.TOPIC)
        for name, table in tables.items():
            assert on_page[name] == table


@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent")
def test_the_pages_have_what_was_published() -> None:
    for page, tables in papers.read(DATA).items():
        assert tables.items() <= tables_on(PAPERS / page, papers.TOPIC).items()


def test_the_recipes_have_what_the_planner_computes() -> None:
    """If not: `python -m benchmarks.planner.pages.recipes --write`, and read what changed."""
    tables = {name: recipes.table(recipe) for name, recipe in recipes.RECIPES.items()}
    assert tables_on(recipes.PAGE, "recipes") == tables


def test_every_marked_table_has_a_command() -> None:
    made = {
        (page, name)
        for pages in (papers.computed(), papers.READ)
        for page, tables in pages.items()
        for name in tables
    }
    marked = {
        (page.name, name) for page in PAPERS.glob("*.md") for name in tables_on(page, papers.TOPIC)
    }
    assert marked == made
