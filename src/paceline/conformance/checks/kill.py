"""A worker is killed with SIGKILL in its forward pass."""

from paceline.conformance.check import Check
from paceline.conformance.checks._faults import struck

CHECK = Check(
    name="kill",
    about="a worker is killed, and the others continue",
    run=struck("kill"),
    typical_seconds=15,
    least_workers=2,
)
