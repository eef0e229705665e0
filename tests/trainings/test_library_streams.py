"""Streams of Hugging Face datasets, webdataset and torchdata: the same samples, also resumed."""

import io
import json
import tarfile
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paceline
from trainings.comparison import (
    LAYOUTS,
    Trained,
    classified,
    killed_and_resumed,
    plain_loop,
    under_paceline,
)

pytestmark = pytest.mark.slow  # loading these libraries takes seconds

SAMPLES, FEATURES = 70, 6
"""The 12 steps of 15 samples pass over them two and a half times."""


def rows() -> list[dict[str, Any]]:
    inputs = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(5))
    return [{"x": each.tolist(), "y": int(each[:3].sum() > 0)} for each in inputs]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples in each library's form, in two files each, beside the folders of runs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "True")  # one of the libraries sets it
    for number, part in enumerate((rows()[:40], rows()[40:])):
        pq.write_table(pa.Table.from_pylist(part), tmp_path / f"part-{number}.parquet")
        with tarfile.open(tmp_path / f"part-{number}.tar", "w") as tar:
            for key, row in enumerate(part):
                content = json.dumps(row).encode()
                member = tarfile.TarInfo(f"{key:04}.json")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def paths(folder: Path, ending: str) -> list[str]:
    return [str(path) for path in sorted(folder.glob(f"part-*.{ending}"))]


def pair(row: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(row["x"]), torch.tensor(row["y"])


def huggingface(folder: Path) -> Any:
    """A dataset in streaming mode, which has a state."""
    import datasets

    return datasets.Dataset.from_parquet(
        paths(folder, "parquet"), streaming=True, cache_dir=folder / "cache"
    )


def webdataset(folder: Path) -> Any:
    """Tar files, read again and skipped in a resumed run."""
    import webdataset as wds

    data = wds.WebDataset(paths(folder, "tar"), shardshuffle=False, nodesplitter=lambda each: each)
    return data.decode().map(lambda sample: sample["json"])


def torchdata(folder: Path) -> Any:
    """A stateful loader that shuffles with a seed."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    del folder
    generator = torch.Generator().manual_seed(3)
    return StatefulDataLoader(rows(), batch_size=None, shuffle=True, generator=generator)


KINDS = {each.__name__: each for each in (huggingface, webdataset, torchdata)}


def streamed(kind: str, folder: Path) -> paceline.Training:
    """A batch of 15 divides neither the samples nor two workers."""
    return described(KINDS[kind](folder))


def described(data: Any) -> paceline.Training:
    return paceline.Training(
        model=lambda: nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 2)),
        loss=F.cross_entropy,
        data=data,
        collate=lambda samples: [
            torch.stack(column) for column in zip(*map(pair, samples), strict=True)
        ],
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.2, momentum=0.9),
        batch=15,
        steps=12,
    )


def plain(kind: str, folder: Path) -> Trained:
    """Train on the library's own stream in plain PyTorch; every pass opens it anew."""
    samples: list[Any] = []
    while len(samples) < 12 * 15:
        samples += [pair(row) for row in KINDS[kind](folder)]
    batches = iter(samples)
    return plain_loop(
        streamed(kind, folder),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9),
        classified,
        steps=[list(islice(batches, 15)) for _ in range(12)],
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["1 worker", "2 replicas", "2 shards"])
def test_it_equals_a_plain_loop(layout: str, kind: str, tmp_path: Path) -> None:
    found = under_paceline(partial(streamed, kind, tmp_path), LAYOUTS[layout], tmp_path)
    found.check_equals(plain(kind, tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_it_resumes_in_the_second_pass(kind: str, tmp_path: Path) -> None:
    resumed = killed_and_resumed(
        partial(streamed, kind, tmp_path), LAYOUTS["2 replicas"], tmp_path, killed_after=7
    )
    resumed.check_equals(plain(kind, tmp_path).after(6))
