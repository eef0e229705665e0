"""A store whose values are signed, so that nobody without the job's secret can place one.

torch's stores trust whoever reaches their port. Values here carry an HMAC over their key, which
holds the generation: a value of an earlier generation, or of another key, is refused. Counters
(`add`) stay bare, as the server itself counts them: a stranger can disturb them, not inject code.
"""

import hashlib
import hmac
from collections.abc import Sequence
from datetime import timedelta

from paceline.comm.torch_internals import Store

_SIGNATURE_BYTES = hashlib.sha256().digest_size


class ForgedValue(RuntimeError):
    """A value in the store was not written by a worker of this job."""


def sign(secret: bytes, key: str, value: bytes) -> bytes:
    """The signature of a value under a key."""
    message = len(key.encode()).to_bytes(4, "big") + key.encode() + value
    return hmac.digest(secret, message, "sha256")


def verified(secret: bytes, key: str, signed: bytes) -> bytes:
    """The value in `signed`, or an error when its signature is not the job's."""
    signature, value = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, sign(secret, key, value)):
        raise ForgedValue(f"the value of {key!r} in the store is not signed with this job's secret")
    return value


class SignedStore(Store):
    """Signs what it sets and verifies what it gets, over another store.

    torch calls these methods from C++ and holds only the C++ half of the object: whoever makes one
    keeps a reference as long as a process group uses it.
    """

    def __init__(self, inner: Store, secret: bytes) -> None:
        super().__init__()
        self._inner = inner
        self._secret = secret
        self._clones: list[SignedStore] = []

    def set(self, key: str, value: str | bytes) -> None:
        """Store a signed value."""
        raw = value.encode() if isinstance(value, str) else bytes(value)
        self._inner.set(key, sign(self._secret, key, raw) + raw)  # type: ignore[arg-type]

    def get(self, key: str) -> bytes:
        """Wait for a value and verify it."""
        return verified(self._secret, key, self._inner.get(key))

    def add(self, key: str, value: int) -> int:
        """Count."""
        return self._inner.add(key, value)

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there."""
        return self._inner.check(keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there."""
        if timeout is None:
            self._inner.wait(keys)
        else:
            self._inner.wait(keys, timeout)

    def deleteKey(self, key: str) -> bool:
        """Forget a key; C++ looks for it under this name."""
        return self._inner.delete_key(key)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Get several."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def clone(self) -> "SignedStore":
        """Another connection to the same store, as torch asks for when it splits a group."""
        clone = SignedStore(self._inner.clone(), self._secret)  # type: ignore[attr-defined]
        self._clones.append(clone)
        return clone

    def set_timeout(self, timeout: timedelta) -> None:
        """How long `get` and `wait` wait."""
        self._inner.set_timeout(timeout)
