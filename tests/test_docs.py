"""The commands and files on the pages are run as they are written.

A comment before a block says what to do with it: `<!-- run -->`, `<!-- run: slurm -->`,
`<!-- run: nightly -->` (on Slurm, too long for every day), `<!-- run: needs MODULE -->` (where it
is installed), `<!-- file: NAME -->`, `<!-- append: NAME -->`, `<!-- skip: REASON -->`.

Guides, which are the tutorials, how-to and migration pages, are typed from start to end, with what
they say of clusters. `pytest tests/test_docs.py -m nightly -rP` prints how long each block takes.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import markdown
import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
EVERYWHERE = ("here", "slurm", "nightly")
LONG_PAGES = (
    *("checkpoints.md", "data.md", "layouts.md", "listeners.md", "plan.md"),
    *("probe.md", "study.md", "sync.md", "trace.md"),
)
"""What they say is tried nightly as they say it; what is behind it has quick tests of its own."""
GUIDES = [
    page
    for page in PAGES
    if page.parent.name in ("tutorials", "how-to", "migration") or page.name == "first-run.md"
]
MADE_AT_BUILD = {
    ROOT / "docs" / path
    for path in re.findall(r"reference/[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
}
"""Pages of the reference; a test of theirs compares them with the navigation."""
BLOCK = re.compile(
    r"^( *)<!-- (run|file|append)(?:: ([^\n]+?))? -->\n\1```\w+\n(.*?)^\1```",
    re.DOTALL | re.MULTILINE,
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


def blocks(page: Path, *places: str) -> list[tuple[str, str, str]]:
    """Those for `here`, `slurm` or `nightly`."""
    found = [
        (match[2], match[3] or "", dedent(match[4])) for match in BLOCK.finditer(page.read_text())
    ]
    elsewhere = ("slurm", "nightly")
    return [each for each in found if (each[1] if each[1] in elsewhere else "here") in places]


def name_of(page: Path) -> str:
    """`data.md`, `how-to/streams.md`."""
    return str(page.relative_to(ROOT)).removeprefix("docs/")


def follow(page: Path, folder: Path, *places: str) -> None:
    for action, name, text in blocks(page, *places):
        if action == "file":
            (folder / name).write_text(text)
        elif action == "append":
            with (folder / name).open("a") as file:
                file.write("\n\n" + text)
        elif name.startswith("needs ") and not is_installed(name.removeprefix("needs ")):
            print(f"skipped: {name}")
        else:
            begin, busy = time.monotonic(), processor_seconds()
            type_block(text, folder)
            took, used = time.monotonic() - begin, processor_seconds() - busy
            print(f"{took:6.1f} s, {used:6.1f} s of CPU  {text.splitlines()[0]}", flush=True)


def processor_seconds() -> float:
    """Of all commands so far, without what a testbed's own processes took."""
    used = os.times()
    return used.children_user + used.children_system


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def type_block(text: str, folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-euc", text],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def environment(folder: Path) -> dict[str, str]:
    """The commands of this checkout, and testbeds apart from those of whoever runs the tests."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "XDG_RUNTIME_DIR": str(folder)}


def with_blocks(*places: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, *places)]


def on_this_machine() -> list[Any]:
    return [
        pytest.param(
            page, id=name_of(page), marks=pytest.mark.nightly if page.name in LONG_PAGES else []
        )
        for page in with_blocks("here")
        if page not in GUIDES
    ]


def guides() -> list[Any]:
    return [
        pytest.param(
            page,
            id=name_of(page),
            marks=pytest.mark.slurm if blocks(page, "slurm", "nightly") else [],
        )
        for page in with_blocks(*EVERYWHERE)
        if page in GUIDES
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)  # several runs each; a block has a limit of its own
@pytest.mark.parametrize("page", on_this_machine())
def test_what_the_page_says(page: Path, folder: Path) -> None:
    follow(page, folder, "here")


@pytest.mark.slurm
@pytest.mark.parametrize(
    "page", [each for each in with_blocks("slurm") if each not in GUIDES], ids=name_of
)
def test_what_the_page_says_of_clusters(page: Path, folder: Path) -> None:
    follow(page, folder, "slurm")


@pytest.mark.slurm
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page", [each for each in with_blocks("nightly") if each not in GUIDES], ids=name_of
)
def test_what_the_page_says_of_clusters_at_length(page: Path, folder: Path) -> None:
    follow(page, folder, "nightly")


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", guides())
def test_the_guide_from_start_to_end(page: Path, folder: Path) -> None:
    follow(page, folder, *EVERYWHERE)


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_each_command_of_a_guide_is_typed_or_says_why_not(page: Path) -> None:
    text = page.read_text()
    marked = set(re.findall(r"<!-- (?:run|skip)\b[^\n]*-->\n *(```bash\n.*?```)", text, re.DOTALL))
    assert set(re.findall(r"```bash\n.*?```", text, re.DOTALL)) == marked


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_marker_has_a_block(page: Path) -> None:
    text = page.read_text()
    assert len(BLOCK.findall(text)) == len(MARKER.findall(text))


FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://)([^)\s#]*)(?:#([^)\s]+))?(?: \"[^\"]*\")?\)")


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
    assert LINK.findall('[a](b.md#c) [d](e.md "title") [f](#g) [h](https://i)') == [
        *(("b.md", "c"), ("e.md", ""), ("", "g"))
    ]
    assert "the-sample-ledger" in anchors(ROOT / "docs" / "checkpoints.md")
    assert "the-sample-leger" not in anchors(ROOT / "docs" / "checkpoints.md")
