"""What a worker sets for its own process."""

import subprocess
import sys

SCRIPT = """
import resource
from paceline.cluster.process import allow_most_files
allow_most_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_worker_may_open_as_many_files_as_the_system_allows() -> None:
    limited = f'ulimit -S -n 64; exec "{sys.executable}" -c "$0"'
    done = subprocess.run(
        ["bash", "-c", limited, SCRIPT], capture_output=True, text=True, check=True
    )
    soft, most = done.stdout.split()
    assert soft == most != "64"
