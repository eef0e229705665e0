"""A worker hangs: SIGSTOP in its forward pass."""

from paceline.conformance.check import Check
from paceline.conformance.checks._faults import struck

CHECK = Check(
    name="hang",
    about="a worker hangs, and the others continue",
    run=struck("hang"),
    typical_seconds=15,
    least_workers=2,
)
