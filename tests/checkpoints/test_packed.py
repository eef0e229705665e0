"""Packed descriptions: small, and bounded when they are unpacked."""

import zlib

import pytest

from paceline.checkpoints.pages.handed_in import HandedIn
from paceline.checkpoints.pages.packed import packed, unpacked

HANDED = HandedIn(structures={"a": "layer." * 10_000}, coverage=7)


def test_the_same_comes_back() -> None:
    contents = packed(HANDED)
    assert unpacked(HandedIn, contents, 1 << 20) == (HANDED, len(HANDED.model_dump_json()))
    assert len(contents) < 1_000


@pytest.mark.parametrize("most_bytes", [0, 1, 60_000])
def test_no_more_is_unpacked_than_allowed(most_bytes: int) -> None:
    with pytest.raises(ValueError, match=r"EOF|Invalid JSON"):
        unpacked(HandedIn, packed(HANDED), most_bytes)


def test_what_unpacks_to_gigabytes_takes_no_memory() -> None:
    bomb = zlib.compress(b" " * (64 << 20), 9)
    with pytest.raises(ValueError, match="Invalid JSON"):
        unpacked(HandedIn, bomb, 1000)


@pytest.mark.parametrize("contents", [b"", b"{}", b"\xff" * 9, packed(HANDED)[:-20]])
def test_anything_else_is_refused(contents: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 # of zlib, or of the JSON
        unpacked(HandedIn, contents, 1 << 20)
