"""Every path, module, benchmark and option that the pages name exists."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from paceline.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]
ROOMS = {path.name for path in (ROOT / "src" / "paceline").iterdir() if path.is_dir()}
FOLDERS = {
    "src",
    "tests",
    "simulated",
    "benchmarks",
    "examples",
    "scripts",
    "docs",
    ".ci",
    ".github",
}

FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.][\w./-]*/[\w.-]*")
MODULE = re.compile(r"\b(paceline(?:\.[a-z_]\w*)+)\b(?!/\d)")  # paceline.run/1 is a form of --json
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")
MADE = re.compile(r"<!-- file: (\S+) -->")
BENCHMARK = re.compile(r"python3? -m (benchmarks(?:\.\w+)+)")
COMMAND = re.compile(r"(?:^|[\s(&|;])paceline ((?:[a-z]+(?:-[a-z]+)* ?)+)([^\n|;&)]*)")
OTHER_PROGRAMS = {
    *("--cpus-per-task", "--gpus-per-node", "--kill-on-bad-exit", "--no-kill"),
    *("--requeue", "--signal", "--gpus-per-task", "--gpu-bind"),  # Slurm
    "--privileged",  # Docker
    *("--max-restarts", "--hostfile", "--include"),  # torchrun and DeepSpeed
    *("--rocm", "--nv", "--gpu", "--device", "--userns", "--cgroups", "--build-arg"),
}
"""Options of other programs, which pages explain."""
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def spans(page: Path) -> list[str]:
    """The inline code of a page."""
    return SPAN.findall(FENCE.sub("", page.read_text()))


def commands(page: Path) -> list[str]:
    """The inline code and the lines of code blocks of a page."""
    blocks = [match[0].replace("\\\n", " ") for match in FENCE.finditer(page.read_text())]
    return spans(page) + [line for block in blocks for line in block.splitlines()]


Command = Any
"""Typer brings its own copy of click, whose classes have no public name."""


@cache
def command_line() -> Command:
    return typer.main.get_command(app)


def options_of(command: Command) -> set[str]:
    names = {name for each in command.params for name in [*each.opts, *each.secondary_opts]}
    return names | {"--help"}


def commands_of(command: Command) -> dict[str, Command]:
    return dict(getattr(command, "commands", {}))


@cache
def all_options() -> set[str]:
    found, left = set(), [command_line()]
    while left:
        command = left.pop()
        found.update(options_of(command))
        left += commands_of(command).values()
    return found


@cache
def benchmark_options() -> set[str]:
    sources = (path.read_text() for path in (ROOT / "benchmarks").rglob("*.py"))
    return {option for source in sources for option in re.findall(r'"(--[a-z-]+)"', source)}


def is_ours(path: str) -> bool:
    """Whether a path is one of this project; `checkpoints/step` lies in a run's folder."""
    first, name = path.split("/", maxsplit=1)[0], path.rsplit("/", maxsplit=1)[-1]
    return first in FOLDERS or (first in ROOMS and "." in name)


def exists(path: str, page: Path) -> bool:
    folders = (ROOT, ROOT / "src" / "paceline", page.parent)
    return any((folder / path).exists() for folder in folders)


def missing_paths(page: Path) -> list[str]:
    """Paths of this project in inline code and in commands, without those that the page makes."""
    named = {span for span in spans(page) if PATH.fullmatch(span)}
    words = {word.split(":")[0] for text in commands(page) for word in text.split()}
    named |= {word for word in words if word.startswith("examples/") and PATH.fullmatch(word)}
    ours = {path for path in named if is_ours(path)} - set(MADE.findall(page.read_text()))
    return sorted(path for path in ours if not exists(path.rstrip("/"), page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_exist(page: Path) -> None:
    assert missing_paths(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_exist(page: Path) -> None:
    named = {found for text in commands(page) for found in MODULE.findall(text)}
    assert sorted(name for name in named if not is_module(name)) == []


GROUPS = {
    "paceline.containers",
    "paceline.devices",
    "paceline.engines",
    "paceline.listeners",
    "paceline.sections",
}
"""Entry point groups."""


def is_module(name: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    parts = name.split(".")
    if name in GROUPS:
        return True
    if len(parts) > 1 and parts[1][0].isupper():
        return True  # a class of the surface: the pages' own code runs
    package = ROOT / "src"
    for number, part in enumerate(parts):
        if (package / part).is_dir():
            package = package / part
        else:
            last_but_one = number >= len(parts) - 2
            in_package = number == len(parts) - 1 and part in (package / "__init__.py").read_text()
            return (
                ((package / f"{part}.py").exists() and last_but_one)
                or in_package
                or (part in {"py", "toml"})
            )
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_exist(page: Path) -> None:
    missing = [
        f"{file}::{name}"
        for file, name in TEST.findall(page.read_text())
        if f"def {name}(" not in (ROOT / file).read_text()
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_benchmarks_exist(page: Path) -> None:
    for text in commands(page):
        for name in BENCHMARK.findall(text):
            assert importlib.util.find_spec(name) is not None, name


def unknown_options(page: Path) -> list[str]:
    """Commands and options of Paceline's that do not exist."""
    unknown = []
    for text in commands(page):
        for words, rest in COMMAND.findall(text):
            command = command_line()
            first = words.split()[0]
            if first not in commands_of(command):
                unknown.append(f"{text}: {first}")
            for word in words.split():
                command = commands_of(command).get(word, command)
            ours = rest.split(" -- ")[0]  # what follows is another program's
            given = {each.split("=")[0] for each in OPTION.findall(ours)}
            unknown += [f"{text}: {each}" for each in given - options_of(command)]
        if text.startswith("--") and not text.startswith("--8<--"):
            option = re.split(r"[ =/]", text)[0]
            if option not in all_options() | benchmark_options() | OTHER_PROGRAMS:
                unknown.append(text)
    return unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_exist(page: Path) -> None:
    assert unknown_options(page) == []


MISTAKES = """
`examples/absent.py` is no file, `--no-such` no option, `paceline start train.py` no command.

```bash
paceline run examples/absent/train.py \\
  --neither 2
```
"""


def test_mistakes_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(MISTAKES)
    assert missing_paths(page) == ["examples/absent.py", "examples/absent/train.py"]
    found = {text.rpartition(": ")[2] for text in unknown_options(page)}
    assert found == {"--no-such", "--neither", "start"}
