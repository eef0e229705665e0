"""`benchmarks/README.md` lists every benchmark, and only commands and pages that exist."""

import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
README = (BENCHMARKS / "README.md").read_text()
ROWS = re.findall(r"^\| .* \| `python -m (benchmarks\S*)[^`]*` \| \[.*\]\((\S+)\) \|", README, re.M)


def module_of(path: Path) -> str:
    parts = path.relative_to(BENCHMARKS.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__main__")


def test_every_benchmark_has_a_row() -> None:
    has_options = {
        module_of(path)
        for path in BENCHMARKS.rglob("*.py")
        if re.search(r"^if __name__ == ", text := path.read_text(), re.M)
        and "add_argument(" in text
    }
    assert has_options == {module for module, _ in ROWS}


@pytest.mark.parametrize("page", sorted({page for _, page in ROWS}))
def test_the_pages_exist(page: str) -> None:
    assert (BENCHMARKS / page).is_file()


def test_folders_are_small() -> None:
    for folder in [BENCHMARKS, *(path for path in BENCHMARKS.rglob("*") if path.is_dir())]:
        entries = [path for path in folder.iterdir() if path.name != "__pycache__"]
        assert len(entries) <= 16, folder
