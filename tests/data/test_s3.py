"""Datasets on a real S3 server: read once, through the cache, ahead of the training."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from data.s3_server import S3Server, serving
from data.shards import write_parquet, write_tars, write_tokens
from data.test_datasets import Described, epoch_of, number_of
from paceline.data import Cache, Mixture, Parquet, Tars, Tokens
from paceline.data.batches import Batches
from paceline.data.collation.form import BatchForm
from paceline.data.loader import load
from paceline.data.order_choice import order_of
from paceline.data.prefetch import ReadAhead
from paceline.specs import PacelineError

pytestmark = pytest.mark.alone

SIZES = [20, 20, 20, 20, 20, 20]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("s3")
    bucket = folder / "bucket"
    bucket.mkdir()
    write_tars(bucket, SIZES, payload_bytes=5000)
    for number in range(4):
        write_tokens(bucket / f"{number}.bin", range(10 * number, 10 * number + 11))
        numbers = range(10 * number, 10 * number + 10)
        write_parquet(bucket / f"{number}.parquet", numbers, rows_per_group=4)
    with serving(folder) as server:
        yield server


def opened(s3: S3Server, folder: Path, **options: Any) -> Tars:
    settings: dict[str, Any] = {"window": 2, "cache": Cache(folder)} | options
    return Tars(
        "s3://bucket/shard-*.tar", number_of, storage_options=s3.storage_options, **settings
    )


def cached(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and path.name != "lock"]


@pytest.mark.parametrize("processes", [0, 2])
def test_tars(s3: S3Server, tmp_path: Path, processes: int) -> None:
    data = opened(s3, tmp_path)
    assert data.samples_per_shard == tuple(SIZES)
    assert sorted(epoch_of(data, processes)) == list(range(sum(SIZES)))
    assert len(cached(tmp_path)) == len(SIZES)


def test_a_cache_that_holds_two_windows_is_enough(s3: S3Server, tmp_path: Path) -> None:
    shard_bytes = max(path.stat().st_size for path in (s3.folder / "bucket").glob("*.tar"))
    data = opened(s3, tmp_path, cache=Cache(tmp_path, 4 * shard_bytes))
    begin = time.monotonic()
    assert sorted(epoch_of(data, processes=2)) == list(range(sum(SIZES)))
    # So long its transfers hang when a loader process drops the connections it inherited.
    assert time.monotonic() - begin < 15
    assert len(cached(tmp_path)) <= 4
    with pytest.raises(PacelineError, match="4 shards are in use or read ahead"):
        opened(s3, tmp_path, cache=Cache(tmp_path, 4 * shard_bytes - 1))


@pytest.mark.parametrize("processes", [0, 2])
def test_tokens_and_parquet(s3: S3Server, tmp_path: Path, processes: int) -> None:
    options: dict[str, Any] = {
        "window": 2,
        "cache": Cache(tmp_path),
        "storage_options": s3.storage_options,
    }
    tokens = Tokens("s3://bucket/*.bin", length=5, **options)
    assert sorted(epoch_of(tokens, processes)) == list(range(40))
    rows = Parquet("s3://bucket/*.parquet", Described(), columns=["number", "square"], **options)
    assert sorted(epoch_of(rows, processes)) == list(range(40))
    assert len(cached(tmp_path)) == 4 + 4 * 3  # files, and row groups


def test_shards_are_here_before_they_are_needed(s3: S3Server, tmp_path: Path) -> None:
    data = opened(s3, tmp_path, samples_per_shard=SIZES)
    order = order_of(data, len(data), seed=1, shuffle=True)
    batches = Batches(order, batch=4, steps=30, workers=1, rank=0)
    batch = load(data, batches, torch.device("cpu"), BatchForm(), processes=0)
    next(batch)
    deadline = time.monotonic() + 20
    while len(cached(tmp_path)) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    assert len(cached(tmp_path)) == 4  # the window in use and the next, and no more
    assert sum(1 for _ in batch) == 29
    assert len(cached(tmp_path)) == 6


def test_a_mixture_reads_ahead_in_its_sources(s3: S3Server, tmp_path: Path) -> None:
    mixed = Mixture([(opened(s3, tmp_path, samples_per_shard=SIZES), 1), (range(10), 1)])
    assert mixed.read_ahead == 2
    order = order_of(mixed, len(mixed), seed=1, shuffle=True)
    with ReadAhead(mixed, Batches(order, batch=4, steps=9, workers=1, rank=0)) as ahead:
        deadline = time.monotonic() + 20
        while len(cached(tmp_path)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        ahead.reached(0)
    assert len(cached(tmp_path)) >= 2


RANK = """
import json, os, sys
import torch
from pathlib import Path
from data.test_s3 import number_of, SIZES
from paceline.data import Cache, Tars
from paceline.data.batches import Batches
from paceline.data.collation.form import BatchForm
from paceline.data.loader import load
from paceline.data.order_choice import order_of

folder, rank, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
data = Tars("s3://bucket/shard-*.tar", number_of, window=2, cache=Cache(Path(folder)),
            storage_options=options)
order = order_of(data, len(data), 1, True)
batches = Batches(order, batch=8, steps=15, workers=2, rank=rank)
for batch in load(data, batches, torch.device("cpu"), BatchForm(), processes=0):
    print(*batch.inputs.tolist())
"""


def test_ranks_of_a_node_fetch_each_shard_once(s3: S3Server, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, sys.path)])
    words = [json.dumps(s3.storage_options)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, tmp_path, str(rank), *words],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    seen = []
    for rank in ranks:
        out, error = rank.communicate(timeout=60)
        assert rank.returncode == 0, error
        seen += [int(word) for word in out.split()]
    assert sorted(seen) == list(range(sum(SIZES)))
    assert len(cached(tmp_path)) == len(SIZES)


def test_a_shard_that_changed_after_the_start(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    system.pipe_file("/changing.bin", b"12345678")
    data = Tokens("memory://changing.bin", length=1, cache=Cache(tmp_path))
    system.pipe_file("/changing.bin", b"1234")
    with pytest.raises(PacelineError, match="had 8 bytes when the training began, and has now 4"):
        data[0]
    system.rm("/changing.bin")
    with pytest.raises(PacelineError, match=r"memory:///changing\.bin cannot be fetched"):
        data[0]
    assert not cached(tmp_path)


def test_credentials_that_are_refused(s3: S3Server, tmp_path: Path) -> None:
    options = s3.storage_options | {"secret": "another"}
    with pytest.raises(PacelineError, match=r"s3://bucket/\*\.bin cannot be listed") as error:
        Tokens("s3://bucket/*.bin", length=5, cache=Cache(tmp_path), storage_options=options)
    assert "credentials" in str(error.value)


def test_a_bucket_that_is_not_there(s3: S3Server, tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match=r"s3://nothing/a-\*\.tar names no file"):
        Tars("s3://nothing/a-*.tar", cache=Cache(tmp_path), storage_options=s3.storage_options)
