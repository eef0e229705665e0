"""What the attacks bring along: harmless, and seen when it has run."""

import os
import pickle
from pathlib import Path


class Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.trace = folder / "it ran"

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.trace),)

    @property
    def pickled(self) -> bytes:
        """The attack itself."""
        return pickle.dumps(self)

    def has_run(self) -> bool:
        """Whether somebody has unpickled it; it can run again afterwards."""
        try:
            self.trace.rmdir()
        except FileNotFoundError:
            return False
        return True
