"""A small cluster on one Linux machine: nodes, shaped links and a real Slurm, without root."""

from paceline.testbed.client import (
    command_prefix,
    down,
    environment,
    link,
    running,
    scheduler,
    start,
    status,
    stop,
    up,
)
from paceline.testbed.requirements import Missing, missing
from paceline.testbed.status import NodeStatus, Status
from paceline.testbed.testbed_spec import TestbedSpec

__all__ = [
    "Missing",
    "NodeStatus",
    "Status",
    "TestbedSpec",
    "command_prefix",
    "down",
    "environment",
    "link",
    "missing",
    "running",
    "scheduler",
    "start",
    "status",
    "stop",
    "up",
]
