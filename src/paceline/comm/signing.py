"""Signs what goes over one connection, so that only those who know the job's secret are heard.

Both ends begin with a random number. From these, the job's secret and what the connection is for
comes a key of this connection alone, by which every message is signed together with its number and
its direction: nothing can be forged, changed, left out, repeated, sent back or moved to another
connection. Nothing is hidden.
"""

import hmac
import secrets

NONCE_BYTES = 32
MAC_BYTES = 32


class Forged(ConnectionError):
    """The other end does not know the job's secret, or what it sent is no message."""


def new_nonce() -> bytes:
    """What an end begins a connection with."""
    return secrets.token_bytes(NONCE_BYTES)


class Signing:
    """The signatures of one end of a connection; `called` for the end that has asked for it."""

    def __init__(
        self, secret: bytes, purpose: bytes, *, mine: bytes, theirs: bytes, called: bool
    ) -> None:
        both = mine + theirs if called else theirs + mine
        self._key = hmac.digest(secret, purpose + both, "sha256")
        self._here, self._there = (b"A", b"B") if called else (b"B", b"A")
        self._said = 0
        self.heard = 0
        """Messages of the other end that were its own."""

    def sign(self, body: bytes) -> bytes:
        """The signature of the next message that goes out."""
        self._said += 1
        return self._mac(self._here, self._said - 1, body)

    def check(self, mac: bytes, body: bytes) -> None:
        """Refuse what is not the next message of the other end."""
        if not hmac.compare_digest(mac, self._mac(self._there, self.heard, body)):
            raise Forged("a message is not signed with this job's secret")
        self.heard += 1

    def _mac(self, direction: bytes, number: int, body: bytes) -> bytes:
        return hmac.digest(self._key, direction + number.to_bytes(8, "big") + body, "sha256")
