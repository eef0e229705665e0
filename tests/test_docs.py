"""The commands and files on the pages are run as they are written.

A comment before a block says what to do with it: `<!-- run -->`, `<!-- run: slurm -->`,
`<!-- run: nightly -->` (on Slurm, too long for every day), `<!-- file: NAME -->`,
`<!-- append: NAME -->`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import markdown
import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(500)]
LONG_PAGES = (
    *("checkpoints.md", "data.md", "first-run.md", "layouts.md", "listeners.md", "plan.md"),
    *("probe.md", "study.md", "sync.md", "trace.md"),
)
"""What they say is tried nightly as they say it; what is behind it has quick tests of its own."""
LONG_FOLDERS = ("tutorials", "how-to", "migration")
"""The same of all pages in these folders."""
MADE_AT_BUILD = {
    ROOT / "docs" / path
    for path in re.findall(r"reference/[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
}
"""Pages of the reference; a test of theirs compares them with the navigation."""
BLOCK = re.compile(
    r"^( *)<!-- (run|file|append)(?:: (\S+))? -->\n\1```\w+\n(.*?)^\1```", re.DOTALL | re.MULTILINE
)
MARKER = re.compile(r"^ *<!-- (?:run|file|append)\b", re.MULTILINE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a disk with the examples in it, as a checkout has them."""
    with tempfile.TemporaryDirectory(prefix="paceline-docs-", dir="/var/tmp") as name:
        shutil.copytree(ROOT / "examples", Path(name) / "examples")
        try:
            yield Path(name)
        finally:
            _take_down(Path(name))


def _take_down(folder: Path) -> None:
    """End the testbeds of a page whose commands were cut off before they could."""
    for left in (folder / "paceline").glob("*/"):
        command = [sys.executable, "-m", "paceline", "testbed", "down", "--name", left.name]
        subprocess.run(command, env=environment(folder), check=True, timeout=60)


def blocks(page: Path, where: str) -> list[tuple[str, str, str]]:
    """Those for `here`, `slurm` or `nightly`."""
    found = [
        (match[2], match[3] or "", dedent(match[4])) for match in BLOCK.finditer(page.read_text())
    ]
    elsewhere = ("slurm", "nightly")
    return [each for each in found if (each[1] if each[1] in elsewhere else "here") == where]


def name_of(page: Path) -> str:
    """`data.md`, `how-to/streams.md`."""
    return str(page.relative_to(ROOT)).removeprefix("docs/")


def is_long(page: Path) -> bool:
    return page.name in LONG_PAGES or page.parent.name in LONG_FOLDERS


def follow(page: Path, folder: Path, where: str) -> None:
    for action, name, text in blocks(page, where):
        if action == "file":
            (folder / name).write_text(text)
        elif action == "append":
            with (folder / name).open("a") as file:
                file.write("\n\n" + text)
        else:
            done = subprocess.run(
                ["bash", "-euc", text],
                cwd=folder,
                env=environment(folder),
                capture_output=True,
                text=True,
                timeout=110,
                check=False,
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def environment(folder: Path) -> dict[str, str]:
    """The commands of this checkout, and testbeds apart from those of whoever runs the tests."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "XDG_RUNTIME_DIR": str(folder)}


def with_blocks(where: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, where)]


def on_clusters() -> list[object]:
    """Pages and where their blocks are run; those that take long are marked."""
    daily = [pytest.param(page, "slurm", id=name_of(page)) for page in with_blocks("slurm")]
    nightly = [
        pytest.param(page, "nightly", id=f"{name_of(page)}-nightly", marks=NIGHTLY)
        for page in with_blocks("nightly")
    ]
    return [*daily, *nightly]


def on_this_machine() -> list[Any]:
    return [
        pytest.param(page, id=name_of(page), marks=NIGHTLY if is_long(page) else [])
        for page in with_blocks("here")
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)  # several runs each; a block has a limit of its own
@pytest.mark.parametrize("page", on_this_machine())
def test_what_the_page_says(page: Path, folder: Path) -> None:
    follow(page, folder, "here")


@pytest.mark.slurm
@pytest.mark.parametrize(("page", "where"), on_clusters())
def test_what_the_page_says_of_clusters(page: Path, where: str, folder: Path) -> None:
    try:
        follow(page, folder, where)
    finally:
        if (folder / "paceline").exists():  # a command failed before the page's own `down`
            subprocess.run(
                [sys.executable, "-m", "paceline", "testbed", "down"],
                env=environment(folder),
                check=False,
            )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_marker_has_a_block(page: Path) -> None:
    text = page.read_text()
    assert len(BLOCK.findall(text)) == len(MARKER.findall(text))


FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://)([^)\s#]*)(?:#([^)\s]+))?\)")


@cache
def anchors(page: Path) -> set[str]:
    """What the headings of a page are linked by, as mkdocs names them."""
    text = FENCE.sub("", page.read_text())
    converter = markdown.Markdown(extensions=["toc", "attr_list"])
    converter.convert(text)
    found, left = set(), list(converter.toc_tokens)
    while left:
        heading = left.pop()
        found.add(heading["id"])
        left += heading["children"]
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(FENCE.sub("", page.read_text())):
        there = (page.parent / target).resolve() if target else page
        if there in MADE_AT_BUILD:
            continue
        assert there.exists(), f"{name_of(page)} links to {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{name_of(page)} links to {target}#{anchor}"


def test_a_link_to_no_heading_is_found() -> None:
    assert LINK.findall("[a](b.md#c) [d](e.md) [f](#g) [h](https://i)") == [
        *(("b.md", "c"), ("e.md", ""), ("", "g"))
    ]
    assert "the-sample-ledger" in anchors(ROOT / "docs" / "checkpoints.md")
    assert "the-sample-leger" not in anchors(ROOT / "docs" / "checkpoints.md")
