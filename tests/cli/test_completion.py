"""Completion in shells, each driven as a user does."""

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_fish = pytest.mark.skipif(
    shutil.which("fish") is None and "PACELINE_TEST_ALL" not in os.environ, reason="needs fish"
)
needs_zsh = pytest.mark.skipif(
    shutil.which("zsh") is None and "PACELINE_TEST_ALL" not in os.environ, reason="needs zsh"
)
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
SECONDS = 60
COMPLETE = "_PACELINE_COMPLETE"
DRIVER = """
eval "$(_PACELINE_COMPLETE=source_bash paceline)"
COMP_WORDS=({words} "{last}")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p paceline | grep -o '_paceline[a-z_]*') paceline
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
"""What bash does at a Tab: it calls the function that the script gave for `paceline`."""


def script(shell: str) -> str:
    return subprocess.run(
        [Path(sys.executable).parent / "paceline"],
        env=os.environ | {COMPLETE: f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def completed(words: str, last: str) -> set[str]:
    done = subprocess.run(
        ["bash", "-c", DRIVER.format(words=words, last=last)],
        env=os.environ | {"PATH": PATH},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "last", "expected"),
    [
        ("paceline", "st", {"study"}),
        ("paceline testbed", "st", {"stop", "start", "status"}),
        ("paceline run train.py", "--precision", {"--precision"}),
        ("paceline run train.py --precision", "", {"fp32", "bf16", "fp16"}),
        ("paceline help", "plan", {"plan", "plan-limits"}),
    ],
)
def test_bash_completes(words: str, last: str, expected: set[str]) -> None:
    assert completed(words, last) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_sound(shell: str) -> None:
    text = script(shell)
    assert COMPLETE in text
    assert "paceline" in text
    assert text.startswith("#compdef paceline\n") == (shell == "zsh")  # else zsh does not find it
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its script was made, but not read by it")
    read = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr


def installed(shell: str, home: Path) -> None:
    """What `--install-completion` writes for a shell, into a home of its own."""
    subprocess.run(
        [shell, "-c", "paceline --install-completion; true"],  # a shell of its own to detect
        env=home_of(home),
        capture_output=True,
        check=True,
    )


def home_of(home: Path) -> dict[str, str]:
    ours = {"HOME": str(home), "ZDOTDIR": str(home), "PATH": PATH, "TERM": "dumb"}
    return {key: value for key, value in os.environ.items() if "XDG" not in key} | ours


@needs_fish
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("paceline ru", {"run"}),
        ("paceline testbed st", {"stop", "start", "status"}),
        ("paceline run train.py --precis", {"--precision"}),
        ("paceline run train.py --precision ", {"fp32", "bf16", "fp16"}),
        ("paceline run tra", {"train.py"}),
    ],
)
def test_fish_completes(tmp_path: Path, line: str, expected: set[str]) -> None:
    installed("fish", tmp_path)
    (tmp_path / "train.py").touch()
    done = subprocess.run(
        ["fish", "-c", f"complete -C '{line}'"],
        cwd=tmp_path,
        env=home_of(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert {each.split("\t")[0] for each in done.stdout.splitlines()} == expected


@contextmanager
def terminal(home: Path) -> Iterator[int]:
    """An interactive zsh on a terminal; yields the end that a user types into and reads."""
    ours, its = os.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", "zsh", "-i"],
        cwd=home,
        env=home_of(home),
        stdin=its,
        stdout=its,
        stderr=its,
    ) as shell:
        os.close(its)
        try:
            yield ours
        finally:
            shell.kill()
            os.close(ours)


def read_until(end: int, text: str) -> str:
    """What comes, until the text has come."""
    said, until = "", time.monotonic() + SECONDS
    while text not in said:
        assert time.monotonic() < until, f"no {text!r} in {said!r}"
        if select.select([end], [], [], 1)[0]:
            said += os.read(end, 65536).decode(errors="replace")
    return said


@needs_zsh
def test_zsh_completes_from_its_first_tab(tmp_path: Path) -> None:
    installed("zsh", tmp_path)
    (tmp_path / "train.py").touch()
    # Debian's zsh sets a PATH of its own.
    settings = f"export PATH='{PATH}'\nunsetopt PROMPT_SP\nPROMPT='ready> '\n"
    file = tmp_path / ".zshrc"
    file.write_text(settings + file.read_text())
    with terminal(tmp_path) as end:
        read_until(end, "ready> ")
        os.write(end, b"paceline ru\t")
        read_until(end, "paceline run ")
        os.write(end, b"tra\t")
        read_until(end, "train.py ")
        os.write(end, b"--precis\t")
        read_until(end, "--precision ")
        os.write(end, b"b\t")
        read_until(end, "bf16 ")
        os.write(end, b"\x15paceline testbed st\t")
        offered = read_until(end, "stop ")
        assert "start " in offered
        assert "Restore a node's power" in offered
