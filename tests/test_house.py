"""The house's own rules: size of files, what may be loaded, what may not occur."""

import importlib.util
import re
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import grimp
import networkx as nx
import pytest

import paceline

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))

MOST_LINES = 330
"""Files have about 300 lines at most; no thought is split for a few more."""
MOST_FILES = 17
"""Folders have about 15 files at most, and `__init__`: what outgrows that gets rooms of its own."""
LARGEST_ROOM = 0.15
"""Of the lines in src."""

UNSAFE = re.compile(
    r"weights_only\s*=\s*False|\bpickle\.loads?\b|\bimport pickle\b|\bcloudpickle\b|\bdill\b"
    r"|(broadcast|gather|scatter|send|recv)_object(_list)?\(|\bmarshal\b"
    r"|(?<![.\w])eval\(|(?<!\.)\bexec\((?!self)|shell\s*=\s*True"
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_files_are_short_and_safe(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("def exec("):  # the command `paceline testbed exec`
            assert not UNSAFE.search(line), f"line {number}: {line.strip()}"


def test_every_folder_says_its_purpose() -> None:
    for folder in {path.parent for path in SOURCES}:
        assert (folder / "__init__.py").read_text().startswith('"""'), folder


def test_folders_are_small() -> None:
    files = Counter(path.parent.relative_to(ROOT) for path in SOURCES)
    assert not {folder: count for folder, count in files.items() if count > MOST_FILES}


def test_no_room_outweighs_the_others() -> None:
    lines: Counter[str] = Counter()
    for path in SOURCES:
        lines[path.relative_to(ROOT / "src" / "paceline").parts[0]] += len(
            path.read_text().splitlines()
        )
    room, most = lines.most_common(1)[0]
    assert most <= LARGEST_ROOM * lines.total(), f"{room}: {most} of {lines.total()} lines"


def test_no_circles() -> None:
    """Imports for type checking and inside functions count, too."""
    graph = grimp.build_graph("paceline", cache_dir=None)
    found = nx.DiGraph()
    for module in graph.modules - {"paceline"}:  # its names load their modules when first used
        for other in graph.find_modules_directly_imported_by(module):
            found.add_edge(module, other)
    assert [sorted(each) for each in nx.strongly_connected_components(found) if len(each) > 1] == []


def test_the_picture_of_the_rooms_is_new() -> None:
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "scripts/architecture.py")
    assert spec is not None
    assert spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    sys.modules["architecture"] = drawing
    spec.loader.exec_module(drawing)
    assert drawing.PICTURE.read_text() == drawing.picture(), "run python scripts/architecture.py"


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_command_line_loads_no_torch() -> None:
    loaded = loaded_after("import paceline.cli.app")
    assert "typer" in loaded
    assert not {"torch", "numpy", "pydantic", "rich", "altair"} & loaded


def test_planning_and_submitting_load_no_torch() -> None:
    loaded = loaded_after(
        "import paceline.schedulers.submission, paceline.schedulers.kinds.slurm,"
        " paceline.launch.supervisor, paceline.report,"
        " paceline.doctor, paceline.testbed.client"
    )
    assert not {"torch", "numpy", "altair"} & loaded


SLURM = re.compile(r"SLURM_|SLURMD_|\b(srun|sbatch|scancel|scontrol|sacct|squeue|sinfo)\b")


def test_only_one_room_names_the_variables_and_programs_of_slurm() -> None:
    """A scheduler is one file or folder: the rest of the house asks its protocol."""
    for path in sorted((ROOT / "src" / "paceline").rglob("*")):
        where = path.relative_to(ROOT / "src" / "paceline")
        known = where.is_relative_to("schedulers/kinds/slurm") or where.parts[0] == "testbed"
        example = where == Path("cli/testbed.py")  # `testbed exec head -- srun` in its help
        if path.suffix in (".py", ".jinja", ".toml", ".html") and not (known or example):
            assert not SLURM.search(path.read_text()), where


def test_help_comes_at_once() -> None:
    """In processor time, of which other tests at the same time take nothing away."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "paceline", "--help"], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.4


def test_the_surface_of_the_library() -> None:
    assert paceline.__all__ == sorted(paceline.__all__, key=lambda name: (not name.isupper(), name))
    for name in paceline.__all__:
        assert getattr(paceline, name).__module__.startswith("paceline.")
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = paceline.fitt
