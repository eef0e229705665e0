"""Token files, Parquet and tars on the local disk, alone and under PyTorch's DataLoader."""

import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import webdataset
from torch.utils.data import DataLoader

import paceline.data
from data.shards import write_parquet, write_tar, write_tars, write_tokens
from paceline.data import Cache, Parquet, Tars, Tokens
from paceline.data.batches import Batches
from paceline.data.collation.form import BatchForm
from paceline.data.loader import load
from paceline.data.order_choice import order_of
from paceline.data.randomness import draws_numbers
from paceline.specs import PacelineError


def number_of(sample: dict[str, Any]) -> tuple[int, int]:
    number = int(sample["cls"])
    return number, number + 1


def epoch_of(data: Any, processes: int) -> list[int]:
    order = order_of(data, len(data), seed=1, shuffle=True)
    batches = Batches(order, batch=4, steps=-(-len(data) // 4), workers=1, rank=0)
    loaded = load(data, batches, torch.device("cpu"), BatchForm(), processes=processes)
    return [int(number) for batch in loaded for number in batch.inputs.flatten().tolist()]


class Described:
    """Picklable decoding of a row."""

    def __call__(self, row: dict[str, Any]) -> tuple[int, int]:
        assert row["square"] == row["number"] ** 2
        return row["number"], row["square"]


def test_tokens(tmp_path: Path) -> None:
    write_tokens(tmp_path / "a.bin", range(9))  # two stretches of four and the target of the last
    write_tokens(tmp_path / "b.bin", range(100, 108))  # one, since the second has no target
    data = Tokens(tmp_path / "*.bin", length=4)
    assert len(data) == 3
    samples = [(inputs.tolist(), target.tolist()) for inputs, target in data.__getitems__([2, 0])]
    assert samples == [([100, 101, 102, 103], [101, 102, 103, 104]), ([0, 1, 2, 3], [1, 2, 3, 4])]
    assert data[1][1].tolist() == [5, 6, 7, 8]
    assert data[1][0].dtype == torch.int64
    assert not draws_numbers(data)


@pytest.mark.parametrize("processes", [0, 2])
def test_an_epoch_of_tokens(tmp_path: Path, processes: int) -> None:
    for number in range(5):
        write_tokens(tmp_path / f"{number}.bin", range(10 * number, 10 * number + 11))
    for window in (None, 2):
        data = Tokens(str(tmp_path / "*.bin"), length=5, window=window)
        assert sorted(epoch_of(data, processes)) == list(range(50))


@pytest.mark.parametrize("processes", [0, 2])
def test_an_epoch_of_tars(tmp_path: Path, processes: int) -> None:
    write_tars(tmp_path, [5, 7, 1, 4])
    data = Tars(tmp_path / "*.tar", number_of, window=2, cache=Cache(tmp_path / "cache"))
    assert data.samples_per_shard == (5, 7, 1, 4)
    assert sorted(epoch_of(data, processes)) == list(range(17))
    assert data[6] == (6, 7)


def test_tars_are_read_as_webdataset_reads_them(tmp_path: Path) -> None:
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        for number in range(4):
            writer.write({"__key__": f"x/{number}", "txt": f"{number}", "seg.json": [number]})
    write_tar(tmp_path / "b.tar", {"y.A.B": b"1", "y.c": b"2", "folder.d/z.txt": b"3", "none": b""})
    theirs = [
        {name: value for name, value in sample.items() if name not in ("__url__", "__local_path__")}
        for path in ("a.tar", "b.tar")
        for sample in webdataset.WebDataset(str(tmp_path / path), shardshuffle=False)
    ]
    data = Tars(tmp_path / "*.tar", cache=Cache(tmp_path / "cache"))
    assert data.__getitems__(list(range(len(data)))) == theirs


def test_where_members_lie_is_found_out_once(tmp_path: Path) -> None:
    write_tars(tmp_path, [3, 3])
    cache = Cache(tmp_path / "cache")
    Tars(tmp_path / "*.tar", number_of, cache=cache)
    kept = sorted((cache.folder / "metadata").iterdir())
    times = [path.stat().st_mtime_ns for path in kept]
    assert len(kept) == 2
    again = Tars(tmp_path / "*.tar", number_of, cache=cache, samples_per_shard=(3, 3))
    assert [again[index][0] for index in range(6)] == list(range(6))
    assert [path.stat().st_mtime_ns for path in kept] == times
    write_tars(tmp_path, [4, 3])  # a changed shard is another
    assert len(Tars(tmp_path / "*.tar", number_of, cache=cache)) == 7


@pytest.mark.parametrize("processes", [0, 2])
def test_an_epoch_of_parquet(tmp_path: Path, processes: int) -> None:
    write_parquet(tmp_path / "a.parquet", range(10), rows_per_group=4)
    write_parquet(tmp_path / "b.parquet", range(10, 17), rows_per_group=3)
    data = Parquet(tmp_path / "*.parquet", Described(), columns=["number", "square"], window=2)
    assert len(data) == 17
    assert data[11] == (11, 121)
    assert sorted(epoch_of(data, processes)) == list(range(17))


def test_rows_without_decoding(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", range(3), rows_per_group=2)
    data = Parquet(tmp_path / "a.parquet")
    assert data[2] == {"number": 2, "square": 4, "text": "row 2"}
    assert not draws_numbers(data)


def test_loader_processes_that_share_no_memory(tmp_path: Path) -> None:
    write_tars(tmp_path, [4, 4])
    data = Tars(tmp_path / "*.tar", number_of, cache=Cache(tmp_path / "cache"))
    data[0]  # what is open here is not taken along
    context = multiprocessing.get_context("forkserver")
    loader = DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context=context)
    assert [inputs.tolist() for inputs, _ in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_mistakes_in_paths(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match=r"nothing-\*\.bin names no file"):
        Tokens(tmp_path / "nothing-*.bin", length=4)
    with pytest.raises(PacelineError, match="no path was given"):
        Tokens([], length=4)
    with pytest.raises(PacelineError, match=r"odd://bucket/a cannot be read: .*odd"):
        Tokens("odd://bucket/a", length=4)


def test_mistakes_in_token_files(tmp_path: Path) -> None:
    (tmp_path / "odd.bin").write_bytes(b"123")
    with pytest.raises(
        PacelineError, match="3 bytes, not a multiple of the 2 bytes of a uint16 token"
    ):
        Tokens(tmp_path / "odd.bin", length=4)
    write_tokens(tmp_path / "short.bin", range(4))
    with pytest.raises(PacelineError, match="the 1 shards of Tokens hold no sample"):
        Tokens(tmp_path / "short.bin", length=4)
    with pytest.raises(PacelineError, match=r"Tokens\(length=0\)"):
        Tokens(tmp_path / "short.bin", length=0)


def test_mistakes_in_tars(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    write_tars(tmp_path, [3, 3])
    with pytest.raises(PacelineError, match="has 1 numbers, but there are 2 shards"):
        Tars(tmp_path / "*.tar", cache=cache, samples_per_shard=[3])
    wrong = Tars(tmp_path / "*.tar", cache=cache, samples_per_shard=[3, 4])
    with pytest.raises(PacelineError, match="has 3 samples, but samples_per_shard says 4"):
        wrong[3]
    subprocess.run(["gzip", tmp_path / "shard-000.tar"], check=True)
    with pytest.raises(PacelineError, match="cannot be read as a tar without compression"):
        Tars(tmp_path / "*.tar.gz", cache=cache)
    shard = tmp_path / "shard-001.tar"
    whole = shard.read_bytes()
    for cut in (700, 1024, 1500):  # in a member, between two, in a header
        shard.write_bytes(whole[:cut])
        with pytest.raises(PacelineError, match="cannot be read as a tar"):
            Tars(shard, cache=cache)
    write_tar(shard, {"a.txt": b"1", "a.TXT": b"2"})
    with pytest.raises(PacelineError, match="the field 'txt' of sample 'a' twice"):
        Tars(shard, cache=cache)


def test_mistakes_in_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no such thing as this")
    with pytest.raises(PacelineError, match="is not a Parquet file"):
        Parquet(tmp_path / "a.parquet")
    write_parquet(tmp_path / "a.parquet", range(3), rows_per_group=2)
    with pytest.raises(PacelineError, match="has no column cube") as error:
        Parquet(tmp_path / "a.parquet", columns=["number", "cube"])
    assert "number, square, text" in str(error.value)


def python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def test_parquet_says_what_it_needs() -> None:
    said = python(
        "import sys; sys.modules['pyarrow'] = None\n"
        "try: from paceline.data import Parquet\n"
        "except Exception as error: print(error)"
    )
    assert "Parquet files need pyarrow" in said
    assert "pip install 'paceline[parquet]'" in said


def test_the_surface_loads_what_it_needs_when_it_is_used() -> None:
    loaded = python("import sys, paceline.data; print('\\n'.join(sys.modules))").split()
    assert not {"torch", "numpy", "pyarrow", "fsspec"} & set(loaded)
    assert paceline.data.__all__ == sorted(paceline.data.__all__)
    for name in paceline.data.__all__:
        assert getattr(paceline.data, name).__module__.startswith("paceline.data.")
    with pytest.raises(AttributeError, match="no attribute 'Tar'"):
        _ = paceline.data.Tar
