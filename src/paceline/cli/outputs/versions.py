"""Names and versions of the forms of `--json`.

A version stays while fields are only added; it grows when one is removed or changes its meaning.
"""

VERSIONS = {
    "check": 1,
    "doctor": 1,
    "doctor.devices": 1,
    "doctor.site": 1,
    "error": 1,
    "help": 1,
    "help.topics": 1,
    "init": 1,
    "ledger": 1,
    "plan": 1,
    "plan.compare": 1,
    "probe": 1,
    "probe.learning": 1,
    "report.comparison": 1,
    "run": 1,
    "run.dry-run": 1,
    "study": 1,
    "submit": 1,
    "submit.array": 1,
    "testbed.down": 1,
    "testbed.node": 1,
    "testbed.status": 1,
    "testbed.up": 1,
    "trace": 1,
}


def full_name(schema: str) -> str:
    """Return a form's name with its version, as the field `schema` has it."""
    return f"paceline.{schema}/{VERSIONS[schema]}"
