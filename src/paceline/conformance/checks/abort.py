"""A worker dies in backward, when some gradients are summed and others are not.

The survivors abort; the partial sums must not count.
"""

from paceline.conformance.check import Check
from paceline.conformance.checks._faults import struck

CHECK = Check(
    name="abort",
    about="a worker dies in the middle of a collective, and the others continue",
    run=struck("abort"),
    typical_seconds=15,
    least_workers=2,
)
