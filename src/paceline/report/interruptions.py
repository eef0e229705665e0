"""The starts of a run told as one story: which steps count, and what lay between the starts."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.report.starts import Columns, Start


@dataclass(frozen=True)
class Interruption:
    """An end of training that was not the end of the run."""

    cause: str
    reached: int
    """The last step before it that is known of."""
    at: float
    """When training last got on, in Unix seconds."""
    workers: int | None
    resumed: int | None = None
    """The step that the next start went on from, 0 for the beginning; None before it did."""
    back_at: float | None = None
    """When the next start began to train."""
    workers_after: int | None = None

    @property
    def lost_steps(self) -> int | None:
        """Steps that had to be taken again."""
        return None if self.resumed is None else max(0, self.reached - self.resumed)

    @property
    def away_seconds(self) -> float | None:
        """How long nothing was trained."""
        return None if self.back_at is None else max(0.0, self.back_at - self.at)


@dataclass(frozen=True)
class Story:
    """What all starts of a run have come to."""

    columns: Columns
    """The steps that count: those that a later start took again are the later start's."""
    interruptions: list[Interruption]


def told(starts: Sequence[Start]) -> Story:
    """The story of starts in their order.

    A start that ended before it trained interrupted nothing: it belongs to the interruption before
    it.
    """
    if len(starts) == 1 and not _awaits_another(starts[0]):
        return Story(starts[0].columns, [])
    columns = Columns()
    found: list[Interruption] = []
    trained = [start for start in starts if start.trained]
    for number, start in enumerate(trained):
        if start.resumed is not None:
            columns.cut(start.resumed)
        columns.extend(start.columns)
        if start is starts[-1] and not _awaits_another(start):
            continue
        after = trained[number + 1] if number + 1 < len(trained) else None
        found.append(
            Interruption(
                cause=start.cause_of_end,
                reached=columns.step[-1] if columns.step else 0,
                at=start.last_time,
                workers=start.number_of_workers,
                resumed=after.resumed if after else None,
                back_at=after.began_time if after else None,
                workers_after=after.number_of_workers if after else None,
            )
        )
    return Story(columns, found)


def _awaits_another(start: Start) -> bool:
    """Whether the time limit ended it and it is in the queue again."""
    done = start.finished
    return done is not None and done.outcome == "interrupted" and start.ended is None
