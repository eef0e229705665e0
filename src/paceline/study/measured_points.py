"""Measurements of each point, from the runs of a study."""

import math

from paceline.report import RunState, cause, summary
from paceline.report.run.step_breakdown import breakdown
from paceline.specs import Measured, PointResult, Run, Study
from paceline.study.study_folder import States, attempts, finished


def point_results(study: Study, states: States) -> tuple[PointResult, ...]:
    """Return the measurements of each point so far."""
    found = []
    for point in study.points:
        tried = attempts(study, point, states)
        failures = [
            _failure(*repeated[-1])
            for repeated in tried
            if repeated and not any(state.status == "finished" for _, state in repeated)
        ]
        # Runs report the batch of their first step, which was before the checkpoint.
        after_times = point.batch_times if study.starts_from else 1
        found.append(
            PointResult(
                point=point,
                runs=tuple(
                    _measured(run, state, study.warm_up, after_times)
                    for run, state in finished(study, point, states)
                ),
                failures=tuple(failures),
                predicted_samples_per_second=_predicted(tried),
            )
        )
    return tuple(found)


def _measured(run: Run, state: RunState, warm_up: int, batch_times: int) -> Measured:
    # Of a run with fewer steps than the warm-up, the last step counts.
    first = min(warm_up, len(state.seconds) - 1)
    seconds, samples = math.fsum(state.seconds[first:]), sum(state.samples[first:])
    figures = summary(state)
    parts = breakdown(state)
    return Measured(
        run=run.path.name,
        samples_per_second=samples / seconds,
        step_seconds=seconds / (len(state.seconds) - first),
        batch=(figures.batch or 1) * batch_times,
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


def _predicted(tried: list[list[tuple[Run, RunState]]]) -> float | None:
    """Return the plan's prediction for the point, in samples per second."""
    for _, state in (each for repeated in tried for each in repeated):
        estimate = state.plan.estimate
        if estimate is not None:
            return estimate.batch / estimate.step_seconds.value
    return None
