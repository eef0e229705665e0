"""The check of a user's script, for the command line."""

from pathlib import Path

from paceline.comm.device_kind import device_kind
from paceline.parallel.check.check import check
from paceline.specs import Layout, PacelineError, Placement
from paceline.specs.finding import Finding
from paceline.user.script import training_of


def findings_of(
    file: Path, function: str, layout: Layout, arguments: tuple[str, ...] = ()
) -> list[Finding]:
    """Return what the check of a script's training finds; its last finding may be an error."""
    findings: list[Finding] = []
    try:
        device = device_kind().bind(Placement())
        findings += check(training_of(file, function, arguments), layout, device)
    except PacelineError as error:
        findings.append(Finding("failed", "bad", error.problem, error.fix))
    return findings
