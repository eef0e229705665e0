"""The topics of `paceline help`: sections of the errors page, and pages of their own.

The documentation's reference has the same texts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

PAGES = ("exit-codes", "environment", "json")
"""Topics that are a page each."""

_SECTION = re.compile(r"^## (.+) \{#([\w-]+)\}\n((?:(?!## ).*\n)*)", re.MULTILINE)
_HEADER = re.compile(r"^\|.*\n\|---.*\n", re.MULTILINE)
"""Of a table."""
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


@dataclass(frozen=True)
class Topic:
    """A title and a text in Markdown."""

    name: str
    title: str
    text: str

    def for_terminal(self) -> str:
        """Return the text without Markdown's links; the rows of tables become paragraphs."""
        text = _LINK.sub(r"\1 (\2)", _HEADER.sub("", self.text))
        lines = map(_row, text.splitlines())
        return "\n".join([self.title, "=" * len(self.title), "", *lines])


def _row(line: str) -> str:
    """Return a line of a table as its cells, one below the other; any other line as it is."""
    if not line.startswith("|"):
        return line
    first, *others = (cell.strip() for cell in line.strip("|").split("|"))
    return "\n".join([first, *(f"    {cell}" for cell in others if cell)])


def page_text(name: str) -> str:
    """Return the Markdown of a page."""
    return (files("paceline.cli.help") / f"{name}.md").read_text()


def sections(text: str) -> dict[str, Topic]:
    """Return the sections of a page that have an anchor, by anchor."""
    return {
        anchor: Topic(anchor, title, body.strip()) for title, anchor, body in _SECTION.findall(text)
    }


@cache
def topics() -> Mapping[str, Topic]:
    """Return all topics by name: first the pages, then the errors."""
    found = {}
    for name in PAGES:
        title, _, text = page_text(name).partition("\n")
        found[name] = Topic(name, title.removeprefix("# "), text.strip())
    return found | sections(page_text("errors"))
