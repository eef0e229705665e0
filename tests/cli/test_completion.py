"""Completion in shells: bash is driven as a user does; scripts of others are made and checked."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", DRIVER.format(words=words, last=last)],
        env=os.environ | {"PATH": path},
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
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its script was made, but not read by it")
    read = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr
