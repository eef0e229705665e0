"""A device fails for good, by injection: its worker is excluded."""

from paceline.conformance.check import Check, Outcome, not_applicable
from paceline.conformance.checks._faults import struck
from paceline.conformance.session import Session


def _run(session: Session) -> Outcome:
    if not session.about[-1]["can_be_made_sick"]:
        return not_applicable("this kind of device cannot be made to fail")
    return struck("sick")(session)


CHECK = Check(
    name="sick-device",
    about="a device fails, and the others continue",
    run=_run,
    typical_seconds=15,
    least_workers=2,
)
