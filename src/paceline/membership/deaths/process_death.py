"""Verify that a lost process on this node is dead, and kill it if necessary."""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

from paceline.cluster.process import start_ticks
from paceline.specs.runs.roster import Member

_KILL_SECONDS = 0.5


def is_dead(member: Member, *, kill: bool) -> bool:
    """Return whether a member's process on this node is dead; with `kill`, kill it first.

    Never kills another process that has the same process ID, nor this process, which others may
    know under an earlier name.
    """
    if member.pid == os.getpid():
        return False
    try:
        process = os.pidfd_open(member.pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        if start_ticks(member.pid) != member.start_ticks:
            return True
        if kill:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        # The descriptor becomes readable when the process ends, even before its parent reaps it.
        return bool(select.select([process], [], [], _KILL_SECONDS if kill else 0)[0])
    except (OSError, IndexError, ValueError):
        return not Path(f"/proc/{member.pid}").exists()
    finally:
        os.close(process)
