"""Signatures of messages and values, so that only processes with the job's secret are trusted.

On a connection, each end starts with a random nonce. The connection's key is derived from both
nonces, the job's secret and the connection's purpose. Every message is signed together with its
sequence number and direction: nothing can be forged, changed, dropped, replayed, reflected or moved
to another connection. Messages are not encrypted.
"""

import hmac
import secrets

NONCE_BYTES = 32
MAC_BYTES = 32


class ForgedValue(RuntimeError):
    """A value in a store or a file was not written by a worker of this job."""


class Forged(ConnectionError):
    """The other end does not know the job's secret, or sent an invalid message."""


def new_nonce() -> bytes:
    """Return a nonce to start a connection with."""
    return secrets.token_bytes(NONCE_BYTES)


class Signing:
    """The signatures of one end of a connection; `called` is true on the end that opened it."""

    def __init__(
        self, secret: bytes, purpose: bytes, *, mine: bytes, theirs: bytes, called: bool
    ) -> None:
        both = mine + theirs if called else theirs + mine
        self._key = hmac.digest(secret, purpose + both, "sha256")
        self._here, self._there = (b"A", b"B") if called else (b"B", b"A")
        self._said = 0
        self.heard = 0
        """Number of valid messages received from the other end."""

    def sign(self, body: bytes) -> bytes:
        """Return the signature of the next outgoing message."""
        self._said += 1
        return self._mac(self._here, self._said - 1, body)

    def check(self, mac: bytes, body: bytes) -> None:
        """Raise `Forged` unless this is the other end's next message."""
        if not hmac.compare_digest(mac, self._mac(self._there, self.heard, body)):
            raise Forged("a message is not signed with this job's secret")
        self.heard += 1

    def _mac(self, direction: bytes, number: int, body: bytes) -> bytes:
        return hmac.digest(self._key, direction + number.to_bytes(8, "big") + body, "sha256")


def sign(secret: bytes, key: str, value: bytes) -> bytes:
    """Return the signature of a value under a key."""
    message = len(key.encode()).to_bytes(4, "big") + key.encode() + value
    return hmac.digest(secret, message, "sha256")


def verified(secret: bytes, key: str, signed: bytes) -> bytes:
    """Return the value in `signed`; raise `ForgedValue` if the signature is wrong."""
    signature, value = signed[:MAC_BYTES], signed[MAC_BYTES:]
    if not hmac.compare_digest(signature, sign(secret, key, value)):
        raise ForgedValue(f"the value of {key!r} is not signed with this job's secret")
    return value
