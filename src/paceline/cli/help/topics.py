"""The topics of `paceline help`: sections of the errors page, and pages of their own.

The documentation's reference has the same texts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from importlib.resources import files

PAGES = ("exit-codes", "environment", "json")
"""Topics that are a page each."""
MADE_AT_BUILD = ("commands.md", "files.md")
"""Pages that the repository does not hold: they have no address beside the others."""

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

    def for_terminal(self, docs: str = "") -> str:
        """Return the text without Markdown's links; the rows of tables become paragraphs.

        A link becomes the page's title and its address, if the pages are published at `docs`.
        """

        def page(link: re.Match[str]) -> str:
            title, path = link.groups()
            known = docs and path not in MADE_AT_BUILD
            return f"{title} ({docs}/{path})" if known else f"{title} (in the documentation)"

        text = _LINK.sub(page, _HEADER.sub("", self.text))
        lines = map(_row, text.splitlines())
        return "\n".join([self.title, "=" * len(self.title), "", *lines])


def _row(line: str) -> str:
    """Return a line of a table as its cells, one below the other; any other line as it is."""
    if not line.startswith("|"):
        return line
    first, *others = (cell.strip() for cell in line.strip("|").split("|"))
    return "\n".join([first, *(f"    {cell}" for cell in others if cell)])


def published_docs() -> str:
    """Return the address of the folder of the published pages; empty if the package has none."""
    try:
        links = metadata("paceline").get_all("Project-URL") or []
    except PackageNotFoundError:  # not installed: run from its source
        return ""
    addresses: dict[str, str] = dict(each.split(", ", 1) for each in links)
    return addresses.get("Documentation", "").rpartition("/")[0]


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
