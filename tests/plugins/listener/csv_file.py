"""A listener that writes a run's metrics to a CSV file."""

import csv
from collections.abc import Sequence
from pathlib import Path

from paceline.observe.digest import Observation
from paceline.observe.listener import ListenerKind
from paceline.specs import Run


class CsvFile:
    """Writes a row for each metric: step, name, value."""

    def __init__(self, run: Run, place: str | None) -> None:
        path = Path(place) if place else run.path / "metrics.csv"
        self.where = str(path)
        self._file = path.open("w", newline="")
        self._rows = csv.writer(self._file)
        self._rows.writerow(("step", "name", "value"))

    def take(self, news: Sequence[Observation]) -> None:
        """Write the new metrics."""
        for seen in news:
            self._rows.writerows((seen.step, name, value) for name, value in seen.figures.items())
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


LISTENER = ListenerKind(package="csv", open=CsvFile)
