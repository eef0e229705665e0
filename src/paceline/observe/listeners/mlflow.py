"""MLflow: a tracking server, or a database file in the run's folder."""

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from paceline.observe.digest import Observation
from paceline.observe.listener import ListenerKind
from paceline.observe.listeners._forward_only import Once, identity
from paceline.specs import PacelineError, Run

MOST_METRICS = 1000
"""Maximum number per request, by MLflow's limit."""
_TAG = "paceline.run"
_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class Mlflow:
    """Logs metrics to one MLflow run, in an experiment named after the job.

    A follower that restarts finds that run again and continues after its last step.
    """

    def __init__(self, run: Run, place: str | None) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        from mlflow import MlflowClient  # noqa: PLC0415

        self.where = place or f"sqlite:///{run.path / 'mlflow.db'}"
        self._client: Any = MlflowClient(tracking_uri=self.where)
        name = run.job.name
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        tags = {_TAG: identity(run), "paceline.folder": str(run.path)}
        found = self._client.search_runs([number], f"tags.`{_TAG}` = '{tags[_TAG]}'", max_results=1)
        own = found[0] if found else self._client.create_run(number, run_name=run.name, tags=tags)
        self._run_id = own.info.run_id
        self._once = Once(last_step=int(own.data.metrics.get("step", 0)))
        self._noted = ""

    def take(self, news: Sequence[Observation]) -> None:
        """Log metrics under their names; events go to the run's description."""
        from mlflow.entities import Metric  # noqa: PLC0415

        metrics = []
        for seen in self._once.new(news):
            at = int(1000 * seen.time)
            metrics += [Metric(name, value, at, seen.step) for name, value in seen.figures.items()]
            if seen.kind == "again":
                self._client.update_run(self._run_id, status="RUNNING")
            elif seen.kind == "ended":
                status = _STATUS[seen.note]
                self._client.set_terminated(self._run_id, status, end_time=at)
        for begin in range(0, len(metrics), MOST_METRICS):
            part = metrics[begin : begin + MOST_METRICS]
            self._client.log_batch(self._run_id, metrics=part)
        if self._once.notes != self._noted:
            self._noted = self._once.notes
            self._client.set_tag(self._run_id, "mlflow.note.content", self._noted)

    def close(self) -> None:
        """Do nothing: all metrics are sent already."""


def _check(place: str | None) -> None:
    """Reject a password on the command line, where every user of the machine can read it."""
    if place and urlsplit(place).password:
        raise PacelineError(
            "--to mlflow was given a password on the command line, where others can read it",
            fix="set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead",
        )


LISTENER = ListenerKind(package="mlflow", open=Mlflow, check=_check)
