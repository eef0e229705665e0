"""The heartbeat of a job's batch script, seen from another process."""

import time

from paceline.specs import BATCH_ALIVE_SECONDS, Run
from paceline.specs.owned_files import read_bounded

_BEATS = 4
"""Missed heartbeats after which the batch script counts as gone; a shared folder may be late."""
_MOST_BEAT_BYTES = 1024


def script_lives(run: Run) -> bool:
    """Return whether the batch script's heartbeat changes; clocks of two nodes may differ."""
    before = _last_beat(run)
    deadline = time.monotonic() + _BEATS * BATCH_ALIVE_SECONDS
    while time.monotonic() < deadline:
        if _last_beat(run) != before:
            return True
        time.sleep(BATCH_ALIVE_SECONDS / 4)
    return False


def _last_beat(run: Run) -> bytes:
    # Opening the file makes a network file system revalidate its cache.
    return read_bounded(run.alive_file, _MOST_BEAT_BYTES) if run.alive_file.exists() else b""
