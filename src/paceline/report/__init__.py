"""Looking at a run: read its folder, watch it live, make its page. Never touches the workers."""

from paceline.report.live import view, watch
from paceline.report.page import render
from paceline.report.read import (
    FailureCause,
    RunReader,
    RunState,
    Status,
    Summary,
    Worker,
    cause,
    summary,
)

__all__ = [
    "FailureCause",
    "RunReader",
    "RunState",
    "Status",
    "Summary",
    "Worker",
    "cause",
    "render",
    "summary",
    "view",
    "watch",
]
