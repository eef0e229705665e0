"""Benchmarks: one folder per question; `README.md` lists them with their commands."""

import sys
from pathlib import Path

# Ranks, an S3 server and a browser are started by the same helpers as in the tests.
sys.path.append(str(Path(__file__).parents[1] / "tests"))
