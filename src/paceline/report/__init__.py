"""Looking at a run: read its folder, watch it live, make its page. Never touches the workers."""

from paceline.report.failure import FailureCause, cause
from paceline.report.figures import Summary, summary
from paceline.report.live import view, watch
from paceline.report.page import render
from paceline.report.prediction import prediction_sentence
from paceline.report.read import RunReader
from paceline.report.starts import Worker
from paceline.report.state import RunState, Status

__all__ = [
    "FailureCause",
    "RunReader",
    "RunState",
    "Status",
    "Summary",
    "Worker",
    "cause",
    "prediction_sentence",
    "render",
    "summary",
    "view",
    "watch",
]
