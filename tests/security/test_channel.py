"""What members say to each other, as somebody on the network would like to change it."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from paceline.comm.signing import Forged
from paceline.membership import channel
from paceline.membership.channel import Channel, parse
from paceline.membership.messages import Hello, Message
from security.schemas import allowed, spoilt

SECRET = b"s" * 32
NONCE = b"n" * 32
HELLO = Hello(name="a", generation=3, purpose="ask")


class Sent:
    """The other half of a connection: keeps what was written."""

    def __init__(self) -> None:
        self.bytes = b""

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.bytes += data


def said(*messages: Hello, nonce: bytes = NONCE, secret: bytes = SECRET) -> tuple[bytes, bytes]:
    """What an end that called says, after its own number, to one that has said `nonce`."""

    async def speak() -> tuple[bytes, bytes]:
        reader, writer = asyncio.StreamReader(), Sent()
        reader.feed_data(nonce)
        end = await Channel.open(reader, writer, secret, initiator=True)  # type: ignore[arg-type]
        own, writer.bytes = writer.bytes, b""
        for message in messages:
            end.send(message)
        return own, writer.bytes

    return asyncio.run(speak())


def heard(
    stream: bytes, monkeypatch: pytest.MonkeyPatch, count: int = 1, secret: bytes = SECRET
) -> list[Message]:
    """What an end that was called and has said `NONCE` hears in these bytes."""

    async def listen() -> list[Message]:
        reader = asyncio.StreamReader()
        reader.feed_data(stream)
        reader.feed_eof()
        end = await Channel.open(reader, Sent(), secret, initiator=False)  # type: ignore[arg-type]
        return [await end.receive() for _ in range(count)]

    with monkeypatch.context() as patch:
        patch.setattr("paceline.comm.signing.secrets.token_bytes", lambda count: NONCE)
        return asyncio.run(listen())


@pytest.fixture(scope="module")
def monkey() -> pytest.MonkeyPatch:
    return pytest.MonkeyPatch()


def test_what_is_said_is_heard(monkey: pytest.MonkeyPatch) -> None:
    own, words = said(HELLO, HELLO)
    assert heard(own + words, monkey, 2) == [HELLO, HELLO]


@given(body=st.binary(max_size=300))
def test_no_bytes_break_the_reader_of_messages(body: bytes) -> None:
    try:
        parse(body)
    except Forged:
        return


@given(value=spoilt(allowed(TypeAdapter(Message).json_schema())))
def test_a_message_with_other_values_is_a_message_or_forged(value: dict[str, Any]) -> None:
    try:
        message = parse(json.dumps(value).encode())
    except Forged:
        return
    assert message.kind == value["kind"]


@pytest.mark.parametrize(
    "body",
    [
        HELLO.model_dump_json().replace(":3", f":{'9' * 100_000}").encode(),
        HELLO.model_dump_json().replace(":3", ":1e999").encode(),
        b"[" * 1_000_000,
        b'{"kind":"hello","member":' * 100_000,
        HELLO.model_dump_json().replace('"a"', r'"\ud800"').encode(),
        b"",
    ],
    ids=["many digits", "infinite", "deep", "deep objects", "half a character", "nothing"],
)
def test_what_breaks_other_parsers(body: bytes) -> None:
    with pytest.raises(Forged):
        parse(body)


@given(stream=st.binary(max_size=400))
def test_a_stranger_is_refused_whatever_it_sends(stream: bytes, monkey: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionError):
        heard(stream, monkey)


@given(data=st.data())
def test_a_changed_or_cut_stream_is_refused(
    data: st.DataObject, monkey: pytest.MonkeyPatch
) -> None:
    own, words = said(HELLO)
    stream = own + words
    placement = data.draw(st.integers(0, len(stream) - 1))
    if data.draw(st.booleans()):
        changed = stream[:placement]
    else:
        other = data.draw(st.integers(1, 255))
        changed = stream[:placement] + bytes([stream[placement] ^ other]) + stream[placement + 1 :]
    with pytest.raises(ConnectionError):
        heard(changed, monkey)


Change = Callable[[bytes, list[bytes]], bytes]


@pytest.mark.parametrize(
    "change",
    [
        lambda own, parts: own + parts[1] + parts[0],
        lambda own, parts: own + parts[1],
        lambda own, parts: own + parts[0] + parts[0],
        lambda own, parts: said()[0] + parts[0] + parts[1],
    ],
    ids=["another order", "one left out", "one repeated", "another connection"],
)
def test_messages_cannot_be_moved(change: Change, monkey: pytest.MonkeyPatch) -> None:
    own, words = said(HELLO, HELLO)
    half = len(words) // 2
    with pytest.raises(Forged, match="not signed"):
        heard(change(own, [words[:half], words[half:]]), monkey, 2)


def test_another_secret_is_none(monkey: pytest.MonkeyPatch) -> None:
    own, words = said(HELLO, secret=b"another")
    with pytest.raises(Forged, match="not signed"):
        heard(own + words, monkey)


def test_what_was_said_is_not_taken_back_as_an_answer() -> None:
    """Who sends everything back, the number too, has the same key in both directions."""

    async def mirrored() -> None:
        reader, writer = asyncio.StreamReader(), Sent()
        task = asyncio.ensure_future(
            Channel.open(reader, writer, SECRET, initiator=True)  # type: ignore[arg-type]
        )
        await asyncio.sleep(0)
        reader.feed_data(writer.bytes)
        end = await task
        writer.bytes = b""
        end.send(HELLO)
        reader.feed_data(writer.bytes)
        with pytest.raises(Forged, match="not signed"):
            await end.receive()

    asyncio.run(mirrored())


def test_a_stranger_may_announce_little(monkey: pytest.MonkeyPatch) -> None:
    own, _ = said()
    with pytest.raises(Forged, match="4097 bytes exceeds the limit"):
        heard(own + (4097).to_bytes(4, "big") + bytes(5000), monkey)


def test_also_a_member_may_not_announce_everything(monkey: pytest.MonkeyPatch) -> None:
    own, words = said(HELLO)
    with pytest.raises(Forged, match="4294967295 bytes exceeds the limit"):
        heard(own + words + b"\xff" * 4, monkey, 2)


def test_the_longest_hello_is_little_enough() -> None:
    message = Hello(name="\x01" * 100, generation=10**18, purpose="watch")
    assert len(message.model_dump_json()) <= channel.MAX_FIRST_BYTES
