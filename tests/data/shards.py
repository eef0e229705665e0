"""Shards that tests read: tars as WebDataset writes them, token files and Parquet files."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_tar(path: Path, fields: dict[str, bytes]) -> None:
    """Write a tar of files with these names and contents."""
    with tarfile.open(path, "w") as tar:
        for name, content in fields.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def write_tars(folder: Path, sizes: list[int], payload_bytes: int = 100) -> None:
    """Write shards of so many samples each; the samples are numbered through all of them."""
    number = 0
    for shard, size in enumerate(sizes):
        fields = {}
        for _ in range(size):
            fields[f"part/{number:06}.cls"] = str(number).encode()
            fields[f"part/{number:06}.Bin"] = bytes([number % 256]) * payload_bytes
            number += 1
        write_tar(folder / f"shard-{shard:03}.tar", fields)


def write_tokens(path: Path, tokens: range) -> None:
    """Write a file of tokens of two bytes."""
    np.asarray(tokens, dtype=np.uint16).tofile(path)


def write_parquet(path: Path, numbers: range, rows_per_group: int) -> None:
    """Write a file whose rows are a number, its square and some text."""
    table = pa.table(
        {
            "number": list(numbers),
            "square": [number**2 for number in numbers],
            "text": [f"row {number}" for number in numbers],
        }
    )
    pq.write_table(table, path, row_group_size=rows_per_group)
