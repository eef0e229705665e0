"""Conformance checks, one file each, in the order in which they run."""

from paceline.conformance.check import Check
from paceline.conformance.checks import (
    abort,
    collectives,
    devices,
    hang,
    host_waits,
    kill,
    layouts,
    power,
    resume,
    sick_device,
    throughput,
)

CHECKS: tuple[Check, ...] = (
    devices.CHECK,
    layouts.CHECK,
    kill.CHECK,
    hang.CHECK,
    abort.CHECK,
    sick_device.CHECK,
    host_waits.CHECK,
    collectives.CHECK,
    resume.CHECK,
    throughput.CHECK,
    power.CHECK,
)
