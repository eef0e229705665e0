"""Compressed gradients on real ranks, held against the same algorithm written down once more."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.specs import Layout
from paceline.sync.compression import CompressedSync
from paceline.sync.encodings import encoding
from paceline.sync.modes.allreduce import AllReduce
from sync.simulated import Replicas, trained
from sync.stepwise import whole_and_resumed
from train.trainings import classification

pytestmark = pytest.mark.slow

STEPS = 12
CODES = [
    "int8",
    "topk:keep=0.1",
    *(
        pytest.param(code, marks=pytest.mark.nightly)
        for code in ("bf16", "int4", "int2", "sign", "topk2:keep=0.1")
    ),
]


def sync_of(code: str, *more: str) -> CompressedSync:
    name, _, keep = code.partition(":")
    return CompressedSync.parse(",".join(filter(None, [f"allreduce:compress={name}", keep, *more])))


def rows_of_shards(
    replicas: Replicas, row: torch.Tensor, shards: int
) -> list[list[tuple[int, torch.Tensor]]]:
    """What each shard holds of every parameter, the last parameter first, as backward comes to
    them: where it begins in the row of all, and what it is."""
    found: list[list[tuple[int, torch.Tensor]]] = [[] for _ in range(shards)]
    begin = 0
    for parameter in replicas.models[0].parameters():
        each = -(-len(parameter) // shards) * parameter[0].numel()
        for shard in range(shards):
            first = min(shard * each, parameter.numel())
            last = min(first + each, parameter.numel())
            found[shard].insert(0, (begin + first, row[begin + first : begin + last]))
        begin += parameter.numel()
    return found


def simulated(
    workers: int, sync: CompressedSync, shards: int = 1, samples: int = 200
) -> torch.Tensor:
    """Replicas that send codes of their gradients: each shard of them for itself."""
    replicas = Replicas(workers, steps=STEPS, batch=32, samples=samples)
    owed: list[list[torch.Tensor]] = [[] for _ in range(shards)]
    for step in range(1, STEPS + 1):
        rows = replicas.gradients(step)
        mean = torch.zeros_like(rows[0])
        by_replica = [rows_of_shards(replicas, row, shards) for row in rows]
        for shard in range(shards):
            places = [begin for begin, _ in by_replica[0][shard]]
            sizes = [len(part) for _, part in by_replica[0][shard]]
            mine = [torch.cat([part for _, part in each[shard]]) for each in by_replica]
            owed[shard] = owed[shard] or [torch.zeros_like(row) for row in mine]
            result, owed[shard] = exchanged(mine, owed[shard], sync, step)
            for begin, part in zip(places, torch.split(result, sizes), strict=True):
                mean[begin : begin + len(part)] = part
        replicas.set_gradients(mean)
        replicas.update()
    return replicas.weights()[0]


def exchanged(
    rows: list[torch.Tensor], owed: list[torch.Tensor], sync: CompressedSync, step: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Each adds what it owes to its row, sends a code of that, and owes what the code lost; who
    sums a part for all owes what the code of the mean lost. The mean, and what each owes then."""
    if step <= sync.warmup:
        return torch.stack(rows).mean(0), owed
    code, workers, length = encoding(sync.compress, keep=sync.keep), len(rows), len(rows[0])

    def coded(row: torch.Tensor) -> torch.Tensor:
        return code.decode(code.encode(row.contiguous()), len(row))

    meant = [row + rest for row, rest in zip(rows, owed, strict=True)]
    if sync.compress in ("bf16", "topk", "topk2"):
        sent = [coded(row) for row in meant]
        owed = [row - said for row, said in zip(meant, sent, strict=True)]
        if sync.compress == "bf16":  # summed in 16 bits, and divided so
            return (torch.stack(sent).bfloat16().sum(0) / workers).float(), owed
        return torch.stack(sent).sum(0) / workers, owed
    each = -(-length // workers)
    padded = [nn.functional.pad(row, (0, workers * each - length)) for row in meant]
    parts = [[coded(part) for part in torch.split(row, each)] for row in padded]
    owed = [row - torch.cat(said)[:length] for row, said in zip(meant, parts, strict=True)]
    means = [torch.stack(same).mean(0) for same in zip(*parts, strict=True)]
    told = [coded(part) for part in means]
    for rank, (part, said) in enumerate(zip(means, told, strict=True)):
        begin = rank * each
        mine = owed[rank][begin : begin + each]
        mine += workers * (part - said)[: len(mine)]
    return torch.cat(told)[:length], owed


@pytest.mark.parametrize("code", CODES)
def test_compressed_gradients_are_those_of_the_algorithm(tmp_path: Path, code: str) -> None:
    workers, sync = 2, sync_of(code)
    expected = simulated(workers, sync)
    found = trained(tmp_path, workers, sync, steps=STEPS, batch=32)
    for _, weights in found:
        torch.testing.assert_close(torch.tensor(weights), expected, atol=1e-5, rtol=1e-4)


def whole_weights(changes: dict[str, Any]) -> tuple[None, list[float]]:
    """Train; the final weights of the whole model in a row."""
    with paceline.start(classification(**changes)) as trainer:
        for batch in trainer:
            trainer.step(batch)
        parameters = [each.full_tensor() for each in trainer.model.parameters()]  # type: ignore[attr-defined]
    return None, torch.cat([each.detach().flatten() for each in parameters]).tolist()


@pytest.mark.parametrize("code", ["topk:keep=0.1", pytest.param("int8", marks=pytest.mark.nightly)])
def test_replicas_of_shards_compress_shard_by_shard(tmp_path: Path, code: str) -> None:
    sync = sync_of(code)
    found = trained(
        tmp_path,
        4,
        sync,
        Layout(replicas=2, shards=2),
        whole_weights,
        steps=STEPS,
        batch=32,
        samples=192,
    )
    expected = simulated(2, sync, shards=2, samples=192)
    for _, weights in found:
        torch.testing.assert_close(torch.tensor(weights), expected, atol=1e-5, rtol=1e-4)


def test_codes_are_summed_by_three_workers(tmp_path: Path) -> None:
    sync = sync_of("int8", "warmup=3")
    found = trained(tmp_path, 3, sync, steps=STEPS, batch=32)
    for _, weights in found:
        expected = simulated(3, sync)
        torch.testing.assert_close(torch.tensor(weights), expected, atol=1e-5, rtol=1e-4)


def test_without_a_loss_of_rank_powersgd_is_all_reduce(tmp_path: Path) -> None:
    """Matrices of 5 x 32 and 32 x 12 have a rank of at most 12: factors of that rank hold all."""
    plain = trained(tmp_path / "plain", 2, AllReduce(), steps=STEPS)
    low = trained(
        tmp_path / "low", 2, CompressedSync.parse("allreduce:compress=powersgd,rank=5"), steps=STEPS
    )
    full = trained(
        tmp_path / "full",
        2,
        CompressedSync.parse("allreduce:compress=powersgd,rank=12"),
        steps=STEPS,
    )
    torch.testing.assert_close(
        torch.tensor(full[0][1]), torch.tensor(plain[0][1]), atol=1e-5, rtol=1e-4
    )
    assert low[0][1] == low[1][1]
    assert low[0][1] != plain[0][1]


@pytest.mark.parametrize(
    "code",
    ["int8", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("topk", "powersgd"))],
)
def test_compressed_training_goes_on_as_it_would_have(tmp_path: Path, code: str) -> None:
    whole, resumed = whole_and_resumed(tmp_path, 2, sync_of(code), steps=STEPS)
    torch.testing.assert_close(resumed, whole, atol=0, rtol=0)
