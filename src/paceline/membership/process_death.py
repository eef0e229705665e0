"""Making sure that a lost process of this node is dead, so that it need not be reckoned with."""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

from paceline.cluster.process import born
from paceline.specs.runs.roster import Member

_SECONDS = 0.5


def is_dead(member: Member, *, end_it: bool) -> bool:
    """Whether a process of this node is dead, where need be by ending it.

    Its number may belong to another process by now: that one is left alone. So is this process,
    which others may know by a name that it had before.
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
        if born(member.pid) != member.born:
            return True
        if end_it:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        # Its descriptor is readable once it has ended, also before its parent has asked for it.
        return bool(select.select([process], [], [], _SECONDS if end_it else 0)[0])
    except (OSError, IndexError, ValueError):
        return not Path(f"/proc/{member.pid}").exists()
    finally:
        os.close(process)
