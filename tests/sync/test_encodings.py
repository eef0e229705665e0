"""Encodings: sizes, bounds of the error, exact places, any length, nothing hidden."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.sync.encodings import Encoding, encoding
from paceline.sync.encodings.largest import CHUNK
from paceline.sync.encodings.pieces import PIECE_ELEMENTS

KEEP = {"topk": 0.01, "topk2": 1 / 64}
TIMES_SMALLER = {
    "bf16": 2,
    "int8": 3.95,
    "int4": 7.8,
    "int2": 15,
    "sign": 31,
    "topk": 100,
    "topk2": 140,
}
BLOCK = {
    "bf16": 1,
    "int8": 1024,
    "int4": 256,
    "int2": 256,
    "sign": 1024,
    "topk": CHUNK,
    "topk2": CHUNK,
}
CODES: dict[str, Encoding] = {
    name: encoding(name, keep=KEEP.get(name, 1)) for name in TIMES_SMALLER
}
every_code = pytest.mark.parametrize("name", CODES)
quickly = settings(max_examples=40, deadline=None)


def some_values(length: int, kind: str, size: float, seed: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    normal = torch.randn(length, generator=random)
    if kind == "sparse":
        normal *= torch.rand(length, generator=random) < 0.03
    elif kind == "heavy":
        normal = normal.pow(5)
    elif kind == "ties":
        normal = normal.mul(2).round()
    return normal * size


values_of_any_length = st.builds(
    some_values,
    st.integers(1, 9000) | st.sampled_from([1, 255, 257, 1023, 1024, 1025, 4095, 4096, 4097, 8193]),
    st.sampled_from(["normal", "sparse", "heavy", "ties"]),
    st.sampled_from([1.0, 1e-30, 1e-9, 1e25]),
    st.integers(0, 999),
)


def there_and_back(code: Encoding, values: torch.Tensor) -> torch.Tensor:
    return code.decode(code.encode(values), len(values))


def blocks(values: torch.Tensor, name: str) -> list[torch.Tensor]:
    return list(torch.split(values, BLOCK[name]))


@every_code
def test_messages_are_as_small_as_promised(name: str) -> None:
    elements = 2**20
    assert 4 * elements / CODES[name].message_bytes(elements) >= TIMES_SMALLER[name]


@every_code
@quickly
@given(values=values_of_any_length)
def test_any_length_the_same_bytes_twice_and_no_more_error_than_there_was_to_say(
    name: str, values: torch.Tensor
) -> None:
    code, before = CODES[name], values.clone()
    message = code.encode(values)
    assert message.dtype == torch.uint8
    assert message.shape == (code.message_bytes(len(values)),)
    assert torch.equal(message, code.encode(values.clone()))
    decoded = code.decode(message, len(values))
    assert decoded.dtype == torch.float32
    assert decoded.shape == values.shape
    assert torch.equal(values, before)
    # Error feedback converges because no message is worse than an empty one.
    lost = (values.double() - decoded.double()).square().sum()
    assert lost <= values.double().square().sum() * (1 + 1e-4)


@every_code
@pytest.mark.parametrize("rest", [0, 1, 1000])
def test_blocks_do_not_know_of_each_other(name: str, rest: int) -> None:
    code = CODES[name]
    values = some_values(PIECE_ELEMENTS + 2 * CHUNK + rest, "heavy", 1.0, seed=1)
    parts = torch.tensor_split(values, [CHUNK, PIECE_ELEMENTS + CHUNK, PIECE_ELEMENTS + 2 * CHUNK])
    alone = torch.cat([there_and_back(code, part) for part in parts if len(part)])
    assert torch.equal(there_and_back(code, values), alone)


@every_code
@quickly
@given(length=st.integers(1, 5000))
def test_zeros_stay_zeros(name: str, length: int) -> None:
    decoded = there_and_back(CODES[name], torch.zeros(length))
    assert torch.equal(decoded, torch.zeros(length))


@every_code
@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-38])
def test_numbers_below_the_smallest_scale_stay_small(name: str, size: float) -> None:
    values = some_values(5000, "normal", size, seed=3)
    lost = there_and_back(CODES[name], values) - values
    assert lost.abs().max() <= max(values.abs().max().item(), torch.finfo(torch.float32).tiny)


@every_code
@quickly
@given(
    odd=st.sampled_from([math.inf, -math.inf, math.nan]),
    values=values_of_any_length,
    placement=st.integers(0, 9000),
)
def test_what_is_not_finite_stays_visible(
    name: str, odd: float, values: torch.Tensor, placement: int
) -> None:
    values[placement % len(values)] = odd
    decoded = there_and_back(CODES[name], values)
    begin = placement % len(values) // BLOCK[name] * BLOCK[name]
    assert not decoded[begin : begin + BLOCK[name]].isfinite().all()
    assert decoded[:begin].isfinite().all()
    assert decoded[begin + BLOCK[name] :].isfinite().all()


@every_code
def test_a_message_may_begin_at_any_byte_of_a_longer_one(name: str) -> None:
    code, values = CODES[name], torch.randn(5001)
    message = code.encode(values)
    for shift in range(1, 5):
        longer = torch.cat([torch.zeros(shift, dtype=torch.uint8), message])
        assert torch.equal(code.decode(longer[shift:], 5001), code.decode(message, 5001))


@quickly
@given(values=values_of_any_length)
def test_bf16_is_the_nearest(values: torch.Tensor) -> None:
    assert torch.equal(there_and_back(CODES["bf16"], values), values.bfloat16().float())


@quickly
@given(values=values_of_any_length)
def test_int8_is_within_half_a_step_and_keeps_zeros(values: torch.Tensor) -> None:
    decoded = there_and_back(CODES["int8"], values)
    for block, found in zip(blocks(values, "int8"), blocks(decoded, "int8"), strict=True):
        # Half a step, what fp32 rounds, and what the smallest scale cannot say.
        bound = block.abs().max() * (1 / 254 + 2e-7) + torch.finfo(torch.float32).tiny
        assert (block - found).abs().max() <= bound
    assert (decoded[values == 0] == 0).all()


@pytest.mark.parametrize("name", ["bf16", "int8"])
@quickly
@given(values=values_of_any_length)
def test_what_was_decoded_is_encoded_to_the_same_message(name: str, values: torch.Tensor) -> None:
    code = CODES[name]
    message = code.encode(values)
    assert torch.equal(code.encode(code.decode(message, len(values))), message)


@quickly
@given(values=values_of_any_length)
def test_int4_is_within_a_tenth_of_the_largest_and_keeps_zeros(values: torch.Tensor) -> None:
    decoded = there_and_back(CODES["int4"], values)
    for block, found in zip(blocks(values, "int4"), blocks(decoded, "int4"), strict=True):
        largest = block.abs().max()
        # Half a step of 0.9 / 7, and for the largest what 0.9 cuts off; a scale has 8 bits.
        bound = torch.where(block.abs() > 0.85 * largest, 0.105, 0.066) * largest
        assert ((block - found).abs() <= bound).all()
    assert (decoded[values == 0] == 0).all()


@quickly
@given(values=values_of_any_length)
def test_int2_says_the_means_of_small_and_of_large_magnitudes(values: torch.Tensor) -> None:
    values = values.clamp(-1e15, 1e15)
    decoded = there_and_back(CODES["int2"], values)
    assert (decoded[values < 0] <= 0).all()
    assert (decoded[values >= 0] >= 0).all()
    for block, found in zip(blocks(values, "int2"), blocks(decoded, "int2"), strict=True):
        levels = torch.unique(found.abs())
        assert len(levels) <= 2
        for level in levels:
            mean = block[found.abs() == level].double().abs().mean()
            assert level.double() == pytest.approx(mean.item(), rel=0.005)


def test_int2_loses_nothing_where_few_are_large_and_the_others_zero() -> None:
    values = torch.zeros(1000)
    values[torch.tensor([3, 300, 301, 999])] = torch.tensor([1.5, -0.25, 0.25, -8.0])
    assert torch.equal(there_and_back(CODES["int2"], values), values)


@quickly
@given(values=values_of_any_length)
def test_sign_says_the_mean_magnitude(values: torch.Tensor) -> None:
    decoded = there_and_back(CODES["sign"], values)
    for block, found in zip(blocks(values, "sign"), blocks(decoded, "sign"), strict=True):
        mean = block.double().abs().mean()
        expected = torch.where(block >= 0, mean, -mean)
        assert torch.allclose(found.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["topk", "topk2"])
@quickly
@given(values=values_of_any_length, keep=st.sampled_from([0.0001, 0.01, 1 / 64, 0.07, 0.5]))
def test_exactly_the_largest_of_each_chunk_are_kept(
    name: str, values: torch.Tensor, keep: float
) -> None:
    decoded = there_and_back(encoding(name, keep=keep), values)
    for chunk, found in zip(blocks(values, name), blocks(decoded, name), strict=True):
        count = max(1, round(keep * len(chunk)))
        largest, kept = chunk.abs().topk(count).values, found != 0
        assert (chunk.abs()[kept] >= largest.min()).all()
        assert kept[chunk.abs() > largest.min()].all()
        assert int(kept.sum()) <= count
        assert (found * chunk >= 0).all()
        if name == "topk":
            assert torch.equal(found[kept], chunk[kept].bfloat16().float())
            # A zero among the largest cannot be told from one that was dropped.
            assert int(kept.sum()) == int((largest > 0).sum())
        else:
            assert len(torch.unique(found[kept].abs())) <= 2


def test_one_in_a_hundred_of_a_chunk_is_41() -> None:
    decoded = there_and_back(CODES["topk"], torch.randn(CHUNK))
    assert int((decoded != 0).sum()) == 41
