"""Looking at a run: read its folder, watch it live, make its page. Never touches the workers."""

from paceline.report.live.view import view, watch
from paceline.report.reading.failure import FailureCause, cause
from paceline.report.reading.generation import Worker
from paceline.report.reading.reader import RunReader
from paceline.report.reading.run_state import RunState, Status
from paceline.report.run.figures import Summary, summary
from paceline.report.run.page import render
from paceline.report.run.prediction import prediction_sentence

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
