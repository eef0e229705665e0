"""TensorBoard event files, by its own package's writer, which needs no torch or TensorFlow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.observe.digest import Observation
from paceline.observe.listener import ListenerKind
from paceline.specs import Run


class TensorBoard:
    """Writes metrics as scalars and events as text into a folder for this run.

    When the run continues from an earlier step, or a follower restarts, a mark in the file makes
    TensorBoard drop the data that it has read from that step on.
    """

    def __init__(self, run: Run, place: str | None) -> None:
        from tensorboard.summary.writer.event_file_writer import (  # noqa: PLC0415
            EventFileWriter,
        )

        folder = Path(place).absolute() / run.name if place else run.path / "tensorboard"
        self.where = f"tensorboard --logdir {folder.parent if place else folder}"
        self._writer: Any = EventFileWriter(str(folder))
        self._notes: list[tuple[int, str]] = []
        self._begun = False

    def take(self, news: Sequence[Observation]) -> None:
        """Write metrics as scalars under their names, and events as text under `notes`."""
        for seen in news:
            if not self._begun:
                self._begun = True
                self._forget_from(0, seen.time)
            note = seen.note
            if seen.kind == "again":
                self._forget_from(seen.step + 1, seen.time)
                # TensorBoard also drops the notes after that step, so write them again.
                dropped = [text for step, text in self._notes if step > seen.step]
                note = "; ".join([*dropped, note])
                self._notes = [each for each in self._notes if each[0] <= seen.step]
            if note:
                self._notes.append((seen.step, note))
            self._write(seen, note)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _write(self, seen: Observation, note: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
        from tensorboard.plugins.text.summary_v2 import text_pb  # noqa: PLC0415

        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in seen.figures.items()
            if name != "step"  # the step is the axis
        ]
        if note:
            values += text_pb("notes", note).value
        if values:
            summary = Summary(value=values)
            self._writer.add_event(Event(wall_time=seen.time, step=seen.step, summary=summary))

    def _forget_from(self, step: int, time: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # noqa: PLC0415

        start = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=time, step=step, session_log=start))


LISTENER = ListenerKind(package="tensorboard", open=TensorBoard)
