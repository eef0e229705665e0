"""Variables by which a user's shell sets options of sbatch.

They are stronger than the lines of a batch script. So a job takes them over where it has no value
of its own, and sbatch does not see them: the script then says what runs.
"""

import os

from paceline.schedulers.quantities import minutes_of
from paceline.specs import Job

_OF_ALLOCATION = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_QOS": "qos",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_GRES": "gres",
}
_PARTITION, _TIME = "SBATCH_PARTITION", "SBATCH_TIMELIMIT"
TAKEN_OVER = frozenset({*_OF_ALLOCATION, _PARTITION, _TIME})


def with_variables(job: Job) -> Job:
    """Return the job with what the variables say where nothing else was said."""
    said = {field: os.environ.get(name) for name, field in _OF_ALLOCATION.items()}
    added = {
        field: value
        for field, value in said.items()
        if value and getattr(job.allocation, field) is None
    }
    minutes = job.limits.minutes
    if minutes is None and (time := os.environ.get(_TIME)):
        minutes = minutes_of(time)
    return job.model_copy(
        update={
            "allocation": job.allocation.model_copy(update=added),
            "partition": job.partition or os.environ.get(_PARTITION) or None,
            "limits": job.limits.model_copy(update={"minutes": minutes}),
        }
    )
