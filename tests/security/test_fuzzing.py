"""The targets of `make fuzz`, with some thousand inputs: seeds with bytes changed, cut or added."""

import random
from pathlib import Path

import pytest

from fuzzing.target import named, names

INPUTS = 300


def _mutated(seed: bytes, chance: random.Random) -> bytes:
    text = bytearray(seed)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(text) + 1)
        match chance.randrange(4):
            case 0:
                text[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del text[at : at + chance.randrange(1, 20)]
            case 2:
                text[at:at] = chance.choice((b'"', b"[" * 50, b"9" * 400, b"-1", b"\xff", b"null"))
            case 3:
                begin = chance.randrange(len(text) + 1)
                text[at:at] = text[begin : begin + chance.randrange(30)]
    return bytes(text)


@pytest.mark.parametrize("name", names())
def test_no_input_breaks_a_reader(name: str, tmp_path: Path) -> None:
    target, chance = named(name), random.Random(name)
    seeds = target.seeds()
    folder = tmp_path / "work"
    folder.mkdir(mode=0o700)
    for number in range(INPUTS):
        data = _mutated(chance.choice(seeds), chance) if number else seeds[0]
        target.consume(data, folder)
