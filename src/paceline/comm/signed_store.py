"""A store with signed values, so that only processes with the job's secret can set one.

torch's stores trust every process that reaches their port. Here each value carries an HMAC that
covers its key, and the key contains the generation: a value of an earlier generation or another key
is refused. Counters (`add`) are not signed, because the server itself increments them: an attacker
can disturb them, but not inject code.
"""

from collections.abc import Sequence
from datetime import timedelta

from paceline.comm.signing import sign, verified
from paceline.comm.torch_internals import Store


class SignedStore(Store):
    """A wrapper around a store that signs values on `set` and verifies them on `get`.

    torch calls these methods from C++ and holds only the C++ half of the object: the creator must
    keep a reference for as long as a process group uses it.
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
        """Add to a counter and return its new value."""
        return self._inner.add(key, value)

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys exist."""
        return self._inner.check(keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys exist."""
        if timeout is None:
            self._inner.wait(keys)
        else:
            self._inner.wait(keys, timeout)

    def deleteKey(self, key: str) -> bool:
        """Delete a key; C++ calls it by this name."""
        return self._inner.delete_key(key)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Get several values."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several values."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def clone(self) -> "SignedStore":
        """Return another connection to the same store; torch needs one when it splits a group."""
        clone = SignedStore(self._inner.clone(), self._secret)  # type: ignore[attr-defined]
        self._clones.append(clone)
        return clone

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of `get` and `wait`."""
        self._inner.set_timeout(timeout)
