"""What the planner is told of each mode, held against the bytes that real ranks send."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paceline.comm.device_kind import device_kind
from paceline.schedulers.task_placement import placement
from paceline.specs import Layout, SyncSettings
from paceline.specs.plans.traffic import ReplicatedPart
from paceline.sync.encodings import encoding
from paceline.sync.modes._local_steps import LocalSteps
from paceline.sync.modes._local_steps_hook import LocalStepsHook
from paceline.sync.modes.allreduce import AllReduce
from paceline.sync.modes.local import Local
from paceline.train.elastic.joined_groups import joined
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.trainer import Trainer
from ranks import new_run, run_ranks
from train.trainings import CLASSES, FEATURES, classification

STEPS = 4
WORDS = [
    *(
        f"allreduce:compress={code}"
        for code in ("bf16", "int8", "int4", "int2", "sign", "topk", "topk2", "powersgd")
    ),
    "canonical",
    "canonical:parts=7",
    "local:every=4",
    "local:every=4,fragments=2,overlap=1",
    "diloco:every=2,compress=int8",
    "diloco:every=4,compress=powersgd",
    "sparseloco:every=4",
    "gossip",
    "gossip:graph=ring,every=2,overlap=1",
    "gossip:graph=random",
    "easgd",
    "stale:staleness=0",
    "stale:staleness=2,servers=2",
]
CODES = ["bf16", "int8", "int4", "int2", "sign", "topk", "topk2"]


def model() -> nn.Module:
    """Large enough for several buckets and blocks, so that what is packed beside counts little."""
    return nn.Sequential(nn.Linear(FEATURES, 300), nn.Linear(300, 1000), nn.Linear(1000, CLASSES))


def sent_and_kept(syncs: Sequence[SyncSettings], workers: int, run: Any) -> list[tuple[int, int]]:
    """Bytes that this rank sends in `STEPS` steps, and that its fragments keep, for each way to
    agree."""
    found = []
    layout = Layout(replicas=workers)
    here = placement(0)
    device = device_kind().bind(here)
    with joined(run, here, device, None) as groups:
        for sync in syncs:
            (once, kept), (twice, _) = (
                _trained(sync, layout, groups, steps) for steps in (STEPS, 2 * STEPS)
            )
            found.append((twice - once, kept))  # what ends a training is sent in both
    return found


def _trained(sync: SyncSettings, layout: Layout, groups: Any, steps: int) -> tuple[int, int]:
    telemetry = Telemetry(groups, None, lambda: False, waits=not sync.replicas_differ)
    training = classification(model=model, steps=steps)
    trainer = Trainer(training, layout, groups, telemetry, sync=sync)
    for batch in trainer:
        trainer.step(batch)
    trainer.conclude()
    mode = trainer._stepper.mode
    trainer.close()
    kept = [
        tensor.nbytes
        for fragment in (mode._fragments if isinstance(mode, LocalStepsHook) else ())
        for tensor in vars(fragment).values()
        if isinstance(tensor, torch.Tensor)
    ]
    return mode.context.transport.sent_bytes, sum(kept)


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_modes_send_and_keep_what_they_declare(tmp_path: Path, workers: int) -> None:
    syncs = [SyncSettings.parse(words) for words in WORDS]
    run = new_run(tmp_path, workers)
    by_rank = run_ranks(sent_and_kept, workers, tmp_path, syncs, workers, run, run=run)
    shapes = [tuple(each.shape) for each in model().parameters()]
    parameters = sum(torch.Size(shape).numel() for shape in shapes)
    for sync, of_ranks in zip(syncs, zip(*by_rank, strict=True), strict=True):
        said = sync.traffic(ReplicatedPart(workers, parameters, shapes=shapes))
        sent = sum(each for each, _ in of_ranks)
        assert STEPS * said.busiest * said.bytes_per_step == pytest.approx(sent, rel=0.01), sync
        assert all(each.dimension == "replicas" for each in said.transfers)
        if isinstance(sync, LocalSteps):
            assert {kept for _, kept in of_ranks} == {sync.state_bytes(workers) * parameters}


@given(st.sampled_from(CODES), st.integers(1, 200_000), st.floats(0.001, 0.5))
def test_messages_are_as_long_as_those_of_the_encodings(
    code: str, elements: int, keep: float
) -> None:
    sync = AllReduce.parse(f"allreduce:compress={code},keep={keep}")
    assert sync.message_bytes(elements) == encoding(code, keep=keep).message_bytes(elements)


@given(st.sampled_from([2, 4, 8, 64]), st.sampled_from([2, 4, 16, 64]))
def test_more_samples_the_rarer_replicas_agree_and_the_more_they_are(
    workers: int, every: int
) -> None:
    local = Local(every=every)
    assert AllReduce().extra_samples(workers) == 1.0
    assert AllReduce(compress="int8").extra_samples(workers) == 1.0
    assert local.extra_samples(1) == 1.0
    assert 1.0 < local.extra_samples(workers) < local.extra_samples(2 * workers)
    assert local.extra_samples(workers) < Local(every=99).extra_samples(workers)
