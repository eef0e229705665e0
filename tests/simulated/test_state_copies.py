"""Copies of the state to the host: hidden behind the next forward, and of the right step.

Before, a copy waited for the whole device.
"""

import threading
from pathlib import Path

import pytest
import torch

import paceline
from paceline.checkpoints.staging import Staging
from paceline.checkpoints.storage_place import opened
from paceline.checkpoints.tensor_extent import Extent
from paceline.checkpoints.verification import saved_at
from paceline.comm.host_copies import state_copies
from paceline.specs import Layout, Run, Saving
from paceline_simulated import core
from ranks import new_run
from simulated_devices import on_sim, run_sim_ranks
from train.trainings import classification


def _staged_after_change(*, waits: bool) -> tuple[float, bool]:
    """Copy a weight that is changed before the copy has run; return its copy, and whether the
    change came first."""
    from paceline_simulated.waits import strict

    weight, staging, release = torch.zeros(4, device="sim"), Staging(), threading.Event()
    pieces = {"model": list(Extent.everything((4,)).pieces("weight", weight))}
    staging.copied(pieces)  # makes the stream and the buffers
    staging.wait(lambda: False)
    assert state_copies._stream is not None
    with state_copies._stream:
        core.enqueue(0, lambda: release.wait(30))
    with strict():
        staged = staging.copied(pieces)
        if waits:
            state_copies.let_end()
        weight += 1
        changed = torch.accelerator.current_stream().record_event()
    if not waits:
        changed.synchronize()
    early = changed.query()
    release.set()
    staging.wait(lambda: False)
    return staged["model"][0].tensor[0].item(), early


@on_sim()
def test_a_copy_is_of_its_step_although_training_goes_on() -> None:
    assert _staged_after_change(waits=True) == (0.0, False)


@on_sim()
def test_a_change_that_does_not_wait_for_the_copy_would_spoil_it() -> None:
    """The simulated device shows the mistake, so the test above can fail."""
    assert _staged_after_change(waits=False) == (1.0, True)


@on_sim()
def test_memory_freed_during_a_copy_is_not_reused() -> None:
    """Without `record_stream`, the copy would have the next owner's bytes."""
    staging, release = Staging(), threading.Event()
    warm = torch.zeros(64, device="sim")
    staging.copied({"model": list(Extent.everything((64,)).pieces("a", warm))})
    staging.wait(lambda: False)
    assert state_copies._stream is not None
    with state_copies._stream:
        core.enqueue(0, lambda: release.wait(30))
    temporary = torch.ones(64, device="sim")
    staged = staging.copied({"model": list(Extent.everything((64,)).pieces("a", temporary))})
    del temporary
    others = [torch.full((64,), 7.0, device="sim") for _ in range(4)]
    torch.accelerator.current_stream().synchronize()
    release.set()
    staging.wait(lambda: False)
    assert set(staged["model"][0].tensor.tolist()) == {1.0}
    del others


def _fit(steps: int) -> None:
    core.set_delay_us(200)  # the device lags behind the host
    paceline.fit(
        classification(
            steps=steps, optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01)
        )
    )


def _hashes(run: Run, step: int) -> dict[str, str]:
    storage = opened(run.checkpoint_place, share=False)
    saved = saved_at(storage, step)
    scalars = saved.manifest.scalars
    assert scalars
    assert all(each.value == step for each in scalars.values())  # AdamW's count of steps
    return {name: record.blake3 for name, record in saved.index.share(0, 1)}


@pytest.mark.nightly
@pytest.mark.parametrize("layout", [Layout(replicas=2), Layout(shards=2)], ids=["ddp", "fsdp"])
def test_checkpoints_have_the_state_of_their_step(tmp_path: Path, layout: Layout) -> None:
    runs = {}
    for steps in (6, 12):
        (tmp_path / str(steps)).mkdir()
        saving = Saving(every_steps=6)
        runs[steps] = new_run(tmp_path / str(steps), 2, layout, saving=saving)
        run_sim_ranks(_fit, 2, tmp_path, steps, run=runs[steps])
    assert _hashes(runs[12], 6) == _hashes(runs[6], 6)
    assert _hashes(runs[12], 6) != _hashes(runs[12], 12)
