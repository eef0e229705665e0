"""Make the pages of the documentation's reference from the code; a hook of MkDocs.

The pages are not stored: `mkdocs build` makes them anew, so that they say what the code does.
"""

import re
import sys
from pathlib import Path
from posixpath import basename, dirname, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs loads this file alone

from paceline.cli.help.topics import page_text  # noqa: E402
from scripts.reference import commands, formats, library, messages  # noqa: E402

FOLDER = "reference"
_LINK = re.compile(r"\]\(([\w-]+\.md)(#[\w-]+)?\)")

INDEX = """# Reference

These pages are made from the code at every build.

| page | contents |
|---|---|
| [Python API](python.md) | the names of `paceline` |
| [Commands](commands.md) | every command with its options |
| [Files](files.md) | every setting of plan, cluster, site and job files |
| [Events](events.md) | every event of a run and its fields |
| [JSON output](json.md) | the forms of `--json`, with JSON schemas |
| [Exit codes](exit-codes.md) | what a command's exit code means |
| [Environment variables](environment.md) | those that Paceline reads |
| [Errors](errors.md) | every error by topic, with what to do |
"""


def pages() -> dict[str, str]:
    """Return the text of every page and schema by its path below `docs`."""
    found = {
        "index.md": INDEX,
        "python.md": library.page(),
        "files.md": formats.files_page(),
        "events.md": formats.events_page(),
        "errors.md": messages.page(),
        "exit-codes.md": page_text("exit-codes"),
        "environment.md": page_text("environment"),
        **commands.pages(),
        **formats.json_pages(),
    }
    return {f"{FOLDER}/{path}": text for path, text in found.items()}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages to those of `docs`."""
    made = pages()
    for path, text in made.items():
        there = {*(file.src_uri for file in files.documentation_pages()), *made}
        files.append(File.generated(config, path, content=_linked(path, text, there)))
    return files


def _linked(page: str, text: str, there: set[str]) -> str:
    """Lead links by a page's name alone to where that page lies."""
    if not page.endswith(".md"):
        return text

    def lead(link: re.Match[str]) -> str:
        beside = f"{dirname(page)}/{link[1]}"
        found = sorted(each for each in there if basename(each) == link[1])
        target = beside if beside in there or not found else found[0]
        return f"]({relpath(target, dirname(page))}{link[2] or ''})"

    return _LINK.sub(lead, text)
