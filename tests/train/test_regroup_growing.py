"""A worker is lost while the batch grows by the noise, and the others go on growing it."""

from pathlib import Path

import pytest

from command import paceline
from paceline.checkpoints.ledger import read_ledger
from paceline.report import RunReader
from paceline.report.run.sections.batch import batch_figures
from paceline.specs import Run
from train.test_regroup import check_story, regroups

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SAMPLES, EPOCHS = 500, 5
TRAIN = f"""
import os, signal
import torch
from torch import nn
from torch.utils.data import TensorDataset
import paceline

# Labels that nothing explains: the noise scale is far above the largest batch.
generator = torch.Generator().manual_seed(1)
inputs = torch.randn({SAMPLES}, 12, generator=generator)
data = TensorDataset(inputs, torch.randint(0, 4, ({SAMPLES},), generator=generator))


def training():
    return paceline.Training(
        model=lambda: nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 4)),
        loss=nn.functional.cross_entropy,
        data=data,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        batch=paceline.grow(9, to=72),
        noise_every=1,
        tuned_at=9,
        epochs={EPOCHS},
    )


def loop():
    victim, after = int(os.environ["VICTIM"]), int(os.environ["AFTER"])
    with paceline.start(training()) as trainer:
        for batch in trainer:
            if trainer.step(batch).step == after and int(os.environ["PACELINE_RANK"]) == victim:
                os.kill(os.getpid(), signal.SIGKILL)
"""


def _struck(folder: Path, victim: int, after: int) -> Run:
    (folder / "train.py").write_text(TRAIN)
    options = ("-n", "3", "--ledger", "--save-every", "0", "--quiet")
    paceline("run", "train.py:loop", *options, folder=folder, VICTIM=str(victim), AFTER=str(after))
    (run,) = (folder / "runs").iterdir()
    return Run.open(run)


# The first window ends with step 20: worker 0 proposes a batch in step 21 or 22, all agree after
# the next, and the batch grows then.
@pytest.mark.parametrize(
    ("victim", "after"),
    [
        pytest.param(0, 21, id="worker 0 with its decision"),
        *(
            pytest.param(victim, after, id=f"{victim} after {after}", marks=pytest.mark.nightly)
            for victim in (0, 2)
            for after in (20, 22, 23, 24, 47)
        ),
    ],
)
def test_a_worker_is_lost_while_the_batch_grows(tmp_path: Path, victim: int, after: int) -> None:
    run = _struck(tmp_path, victim, after)
    first = regroups(run)[0]
    assert (first.workers, first.lost) == (2, [victim])
    check_story(run)
    assert [each.exact for each in read_ledger(run.ledger)] == [True] * EPOCHS
    state = RunReader(run).refresh()
    assert sum(state.samples) == SAMPLES * EPOCHS
    figures = batch_figures(state)
    assert figures is not None
    assert [each.batch for each in figures.grew] == [18, 36, 72]
    # Each growth comes right after the last step with the smaller batch.
    for each in figures.grew:
        assert state.samples[each.step - 1] < each.batch
        assert sum(state.samples[: each.step]) == each.samples
    assert set(state.samples) >= {9, 18, 36, 72}
