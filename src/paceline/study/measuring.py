"""From the runs of a study to what came of each point."""

import math

from paceline.report import RunState, cause, summary
from paceline.specs import Measured, Point, PointResult, Run
from paceline.study.folder import Repetition, StudyFolder


def point_results(folder: StudyFolder) -> tuple[PointResult, ...]:
    """What each point's runs have measured so far."""
    study, states = folder.study, folder.states()
    found = []
    for point in study.points:
        names = [Repetition(point, number + 1).name for number in range(study.repeat)]
        attempts = [states.get(name, []) for name in names]
        finished = [
            _measured(run, state, study.warm_up)
            for repeated in attempts
            for run, state in [each for each in repeated if each[1].status == "finished"][:1]
        ]
        failures = [
            _failure(*repeated[-1])
            for repeated in attempts
            if repeated and not any(state.status == "finished" for _, state in repeated)
        ]
        found.append(
            PointResult(
                point=point,
                runs=tuple(finished),
                failures=tuple(failures),
                predicted_samples_per_second=_predicted(point, attempts),
            )
        )
    return tuple(found)


def _measured(run: Run, state: RunState, warm_up: int) -> Measured:
    # A run with fewer steps than the warm-up has its last one counted.
    first = min(warm_up, len(state.seconds) - 1)
    seconds, samples = math.fsum(state.seconds[first:]), sum(state.samples[first:])
    figures = summary(state)
    parts = figures.breakdown
    return Measured(
        run=run.path.name,
        samples_per_second=samples / seconds,
        step_seconds=seconds / (len(state.seconds) - first),
        batch=figures.batch or 1,
        seconds=parts.seconds if parts else {},
        network_seconds=parts.network_seconds if parts else 0.0,
        limit=parts.limit if parts else "compute",
        final_loss=figures.final_loss,
    )


def _failure(run: Run, state: RunState) -> str:
    if not state.over:
        return f"{run.path.name} has not ended"
    found = cause(state, run)
    return f"{found.where}: {found.message.splitlines()[0]}" if found else f"it was {state.status}"


def _predicted(point: Point, attempts: list[list[tuple[Run, RunState]]]) -> float | None:
    """What the planner said of it when a run of it was begun."""
    for _, state in (each for repeated in attempts for each in repeated):
        estimate = state.plan.estimate
        if estimate is not None:
            return estimate.batch / estimate.step_seconds.value
    return None
