"""Snapshot a training's state, and identify the data that it was trained on."""

from collections.abc import Callable

from paceline.checkpoints.ledger import CountedBy
from paceline.checkpoints.manifest import Manifest, Scalar
from paceline.checkpoints.saver import Snapshot
from paceline.data.order import fingerprint
from paceline.specs import PacelineError
from paceline.train.monitor.step_windows import Progress
from paceline.train.state.training_state import TrainingState
from paceline.user.training import Training


def snapshot_of(
    state: TrainingState,
    progress: Progress,
    data: dict[str, int],
    metrics: dict[str, float],
    check: Callable[[], None],
) -> Snapshot:
    """Return the state after the last step. All workers call this together.

    `check` raises if the state is found to be void later, when its copy is on the host.
    """
    state.parallel_model.settle()
    head = Manifest.head(
        progress.steps,
        samples=progress.samples,
        seconds=progress.seconds,
        data=data,
        metrics=metrics,
        values=state.values(),
    )
    scalars = state.scalars()

    def on_device() -> dict[str, Scalar]:
        check()
        return scalars()

    return Snapshot(head, state.sections(), on_device=on_device)


def data_identity(training: Training) -> dict[str, int]:
    """Return the values that determine a training's sample order."""
    if not training.has_index:  # the number of steps may change
        return {"batch": training.first_batch, "seed": training.seed}
    order = training.sample_order()
    return {
        "samples": order.samples,
        "batch": training.first_batch,
        "seed": training.seed,
        "order": fingerprint(order),
    }


def counted_by(training: Training) -> CountedBy:
    """Return what the sample ledger counts a training's samples by."""
    if training.data is None:
        return "made"
    return "index" if training.has_index else "stream position"


def check_same_data(manifest: Manifest, data: dict[str, int]) -> None:
    """Raise if a checkpoint has another sample order: the samples seen would be unknown."""
    for name, now in data.items():
        before = manifest.data.get(name)
        if name == "order" and before != now:
            raise PacelineError(
                "the sample order differs from the one that the run started with, so the samples"
                f" that the run has seen up to step {manifest.step} are unknown",
                fix="resume with the dataset, mixture, window and order of the first start, or"
                " start a new run",
            )
        if before != now:
            raise PacelineError(
                f"the run started with {name}={before}, but {name} is {now} now, so the samples"
                f" that it has seen up to step {manifest.step} are unknown",
                fix=f"resume with {name}={before}, or start a new run",
            )
