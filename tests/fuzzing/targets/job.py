"""Job files."""

from pathlib import Path

from fuzzing.target import toml_target
from paceline.specs import Job

TARGET = toml_target(
    Job(name="a", train=Path("t.py"), folder=Path("/"), python=Path("/bin/python3"))
)
