"""Tables of kernels beside a cluster's file, and in the user's cache."""

from pathlib import Path

import pytest

from paceline.cluster.kernels.kernel_files import (
    cached,
    keep,
    kernel_file,
    with_kernels,
    write_kernels,
)
from paceline.specs import PacelineError
from paceline.specs.measurements.cluster import MixedNodes
from paceline.specs.measurements.kernels import KernelTable
from plan.kernel_tables import grid, kernel_table, of_power
from plan.shapes import cluster

TABLE = kernel_table("a100-80gb", grid(of_power(1.0)))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches" / "paceline" / "kernels"


def test_what_was_kept_is_found_and_belongs_to_its_user_alone(cache: Path) -> None:
    assert cached(TABLE.source) is None
    keep(TABLE)
    assert cached(TABLE.source) == TABLE
    (file,) = cache.iterdir()
    assert [each.stat().st_mode & 0o777 for each in (cache, file)] == [0o700, 0o600]


@pytest.mark.parametrize(
    "changed",
    [
        {"device": "another one"},
        {"versions": (("torch", "2.13.1"),)},
        {"versions": (("torch", "2.13.0"), ("driver", "570.1"))},
        {"neighbors": 2},
    ],
)
def test_another_device_version_or_neighbor_has_no_part_in_it(
    cache: Path, changed: dict[str, object]
) -> None:
    keep(TABLE)
    assert cached(TABLE.source.model_copy(update=changed)) is None


@pytest.mark.parametrize("contents", ["", "{}", "[" * 10_000, '{"source": 1}', "x" * (2 << 20)])
def test_a_damaged_cache_is_measured_again(cache: Path, contents: str) -> None:
    keep(TABLE)
    (file,) = cache.iterdir()
    file.write_text(contents)
    assert cached(TABLE.source) is None
    keep(TABLE)
    assert cached(TABLE.source) == TABLE


def test_a_cache_that_others_can_write_is_not_read(cache: Path) -> None:
    keep(TABLE)
    (file,) = cache.iterdir()
    file.chmod(0o666)
    assert cached(TABLE.source) is None


def test_without_a_place_for_it_nothing_is_kept(cache: Path) -> None:
    cache.parent.parent.mkdir()
    cache.parent.write_text("a file in the place of the folder")
    keep(TABLE)
    assert cached(TABLE.source) is None


def test_a_cluster_has_the_kernels_of_its_device(tmp_path: Path) -> None:
    file, where = tmp_path / "here.toml", cluster()
    assert with_kernels(where, file) == where
    write_kernels(kernel_file(file, "a100-80gb"), TABLE)
    assert kernel_file(file, "a100-80gb").name == "kernels-a100-80gb.json"
    found = with_kernels(where, file)
    assert found.kernels == TABLE
    assert "kernels" not in found.to_toml()
    renamed = where.device.model_copy(update={"name": "A100 80GB"})  # has the same file name
    assert with_kernels(where.model_copy(update={"device": renamed}), file).kernels is None
    mixed = where.model_copy(update={"mixed": (MixedNodes(nodes=1, device=renamed),)})
    assert with_kernels(mixed, file).kernels is None


def test_a_file_that_is_no_table_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    kernel_file(file, "a100-80gb").write_text(KernelTable.model_dump_json(TABLE)[:-20])
    with pytest.raises(PacelineError, match="is not a valid table of kernels"):
        with_kernels(cluster(), file)


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = kernel_file(tmp_path / "here.toml", "a100-80gb")
    file.mkdir()
    with pytest.raises(PacelineError, match=f"{file} cannot be read"):
        with_kernels(cluster(), tmp_path / "here.toml")
