"""The house's own rules: size of files, what may be loaded, what may not occur."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import paceline

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))

LONG_FILES: set[str] = set()
"""Files that may be over 300 lines. This list may only shrink."""

UNSAFE = re.compile(
    r"weights_only\s*=\s*False|\bpickle\.loads?\b|\bimport pickle\b|\bcloudpickle\b|\bdill\b"
    r"|_object(_list)?\(|\bmarshal\b|(?<![.\w])eval\(|(?<!\.)\bexec\((?!self)|shell\s*=\s*True"
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_files_are_short_and_safe(path: Path) -> None:
    text = path.read_text()
    if str(path.relative_to(ROOT)) not in LONG_FILES:
        assert len(text.splitlines()) <= 300
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("def exec("):  # the command `paceline testbed exec`
            assert not UNSAFE.search(line), f"line {number}: {line.strip()}"


def test_every_room_says_its_purpose() -> None:
    rooms = [
        path for path in (ROOT / "src" / "paceline").iterdir() if (path / "__init__.py").exists()
    ]
    assert rooms
    for room in rooms:
        assert (room / "__init__.py").read_text().startswith('"""'), room.name


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
        "import paceline.schedulers.slurm, paceline.launch.supervisor, paceline.report,"
        " paceline.doctor, paceline.testbed.client"
    )
    assert not {"torch", "numpy", "altair"} & loaded


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
    assert paceline.__all__ == sorted(paceline.__all__)
    for name in paceline.__all__:
        assert getattr(paceline, name).__module__.startswith("paceline.")
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = paceline.fitt
