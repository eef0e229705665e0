"""A device fails by injection: the worker raises torch.AcceleratorError."""

from paceline.conformance.check import Check
from paceline.conformance.checks._faults import struck

CHECK = Check(
    name="sick-device",
    about="a device fails, and the others continue",
    run=struck("sick"),
    typical_seconds=15,
    least_workers=2,
)
