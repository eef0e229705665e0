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
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(500)]
LONG_PAGES = (
    *("checkpoints.md", "data.md", "first-run.md", "layouts.md", "listeners.md", "plan.md"),
    *("probe.md", "study.md", "sync.md", "trace.md"),
)
"""What they say is tried nightly as they say it; what is behind it has quick tests of its own."""
BLOCK = re.compile(r"<!-- (run|file|append)(?:: (\S+))? -->\n```\w+\n(.*?)```", re.DOTALL)


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
    found = [(match[1], match[2] or "", match[3]) for match in BLOCK.finditer(page.read_text())]
    elsewhere = ("slurm", "nightly")
    return [each for each in found if (each[1] if each[1] in elsewhere else "here") == where]


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
    daily = [pytest.param(page, "slurm", id=page.name) for page in with_blocks("slurm")]
    nightly = [
        pytest.param(page, "nightly", id=f"{page.name}-nightly", marks=NIGHTLY)
        for page in with_blocks("nightly")
    ]
    return [*daily, *nightly]


def on_this_machine() -> list[Any]:
    return [
        pytest.param(page, id=page.name, marks=NIGHTLY if page.name in LONG_PAGES else [])
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
