"""The critical batch of a training, from the gradient noise that one of its runs measured."""

from paceline.learning.critical_batch import critical_batch
from paceline.report.reading.run_state import RunState
from paceline.report.run.sections.batch import batch_figures
from paceline.specs import Learning, NoisePoint, Run


def learning_of(run: Run, state: RunState, *, weighted: bool = True) -> Learning | None:
    """Return what a run says about its training's batch; None if it measured too little.

    `weighted`: with the optimizer's weights of coordinates, where they were measured.
    """
    figures = batch_figures(state, weighted=weighted)
    if figures is None or not figures.windows or run.job.train is None:
        return None
    highs = [(each.measured_steps, each.scale.high) for each in figures.windows]
    bounded = [(steps, high) for steps, high in highs if high is not None]
    return Learning(
        training=f"{run.job.train.name}:{run.job.function}",
        batch=figures.batch,
        steps=state.step[-1],
        weighted=figures.weighted,
        critical=figures.critical,
        low=figures.at_least,
        high=critical_batch(bounded, figures.batch) if len(bounded) == len(highs) else None,
        growth=tuple(
            NoisePoint(
                samples=each.samples,
                scale=each.scale.value,
                low=each.scale.low,
                high=each.scale.high,
            )
            for each in figures.windows
        ),
    )
