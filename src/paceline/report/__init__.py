"""Reports: read a run's folder, show it live, write its page. Never touches the workers."""

from paceline.report.drawing.brief import Content
from paceline.report.live.view import view, watch
from paceline.report.reading.failure_cause import FailureCause, cause
from paceline.report.reading.generation import Worker
from paceline.report.reading.reader import RunReader
from paceline.report.reading.run_state import RunState, Status
from paceline.report.run.figures import Summary, summary
from paceline.report.run.page import render
from paceline.report.run.section import ReportedRun, Section

__all__ = [
    "Content",
    "FailureCause",
    "ReportedRun",
    "RunReader",
    "RunState",
    "Section",
    "Status",
    "Summary",
    "Worker",
    "cause",
    "render",
    "summary",
    "view",
    "watch",
]
