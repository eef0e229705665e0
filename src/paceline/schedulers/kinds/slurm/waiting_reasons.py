"""Slurm's words for why a job is pending, in plain ones."""

from datetime import datetime

from paceline.schedulers.scheduler import Waiting

_REASONS = {
    "Priority": "jobs of a higher priority come first",
    "Resources": "other jobs use the nodes",
    "BeginTime": "its earliest start time has not come",
    "Dependency": "the job that it depends on has not ended",
    "DependencyNeverSatisfied": "it depends on a job that did not end as asked, so it never starts",
    "Reservation": "its reservation has not begun, or is in use",
    "ReservationDeleted": "its reservation was deleted",
    "Licenses": "other jobs use the licenses",
    "JobHeldUser": "it is held; `scontrol release` lets it start",
    "JobHeldAdmin": "the site's staff hold it",
    "JobArrayTaskLimit": "as many elements of its array as allowed are running",
    "Cleaning": "the nodes of its last start are not free yet",
    "ReqNodeNotAvail": "a node that it needs is down or reserved",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node has what it asks for, so it never starts",
    "PartitionDown": "its partition starts no jobs now",
    "PartitionInactive": "its partition starts no jobs now",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows, so it never starts",
    "PartitionTimeLimit": "it asks for more time than its partition allows, so it never starts",
    "InvalidAccount": "its account is not valid, so it never starts",
    "InvalidQOS": "its QOS is not valid, so it never starts",
    "AccountNotAllowed": "its partition does not take its account, so it never starts",
    "QOSNotAllowed": "its partition does not take its QOS, so it never starts",
}
_OWNERS = {"QOS": "QOS", "Assoc": "account", "MaxQOS": "QOS"}
"""Beginnings of the names of limits, such as QOSGrpNodeLimit and AssocMaxJobsLimit."""


def waiting_of(row: dict[str, str]) -> Waiting | None:
    """Return why a job of `scontrol show job` waits; None if it is not pending, or was not
    scheduled yet."""
    word = row.get("Reason", "None").split(",")[0]
    if row.get("JobState") != "PENDING" or word == "None":
        return None
    try:
        start = datetime.fromisoformat(row.get("StartTime", "")).astimezone()
    except ValueError:  # Unknown, or as the user's SLURM_TIME_FORMAT has it
        start = None
    return Waiting(reason=_plain(word), word=word, start=start)


def _plain(word: str) -> str:
    if word in _REASONS:
        return _REASONS[word]
    owner = next((plain for start, plain in _OWNERS.items() if word.startswith(start)), None)
    if owner and word.endswith("PerJobLimit"):
        return f"it asks for more than its {owner} allows one job, so it never starts"
    if owner and word.endswith("Limit"):
        return f"a limit of its {owner} is reached"
    return "its scheduler gives the reason"
