"""How long past jobs waited, from Slurm's accounting."""

from datetime import datetime

from paceline.schedulers.kinds.slurm.controller import Controller
from paceline.schedulers.scheduler import PastWait

DAYS = 7
"""How far to look back: queues change by the week, and busy sites have many jobs."""
_SECONDS = 60.0
"""Time limit of the call: the accounting of a large site answers slowly."""


def past_waits(
    controller: Controller, partition: str | None, account: str | None
) -> list[PastWait]:
    """Return the waits of the last days' jobs that have started, as far as this user may see them.

    A job waits from when it might have started: not while it is held, or waits for other jobs.
    """
    names = {"--partition": partition, "--accounts": account}
    only = [f"{option}={name}" for option, name in names.items() if name is not None]
    output = controller.call(
        *("sacct", "--allusers", "--allocations", "--noheader", "--parsable2"),
        *(f"--starttime=now-{DAYS}days", "--format=Eligible,Start,NNodes", *only),
        seconds=_SECONDS,
    )
    rows = (line.split("|") for line in output.splitlines())
    found = (_wait(*row) for row in rows if len(row) == 3)
    return [each for each in found if each is not None]


def _wait(eligible: str, start: str, nodes: str) -> PastWait | None:
    """Return the wait of a job; None if it has not started."""
    try:
        begin, end = datetime.fromisoformat(eligible), datetime.fromisoformat(start)
    except ValueError:  # Unknown or None
        return None
    if not nodes.isdigit() or not int(nodes):
        return None
    return PastWait(int(nodes), max(0.0, (end - begin).total_seconds()))
