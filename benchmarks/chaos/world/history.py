"""What was done to a run, and what was seen of it: JSON lines, in the order of happening."""

import json
import time
from pathlib import Path
from typing import Any


class History:
    """Written by the harness; the checker reads the file alone."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def write(self, what: str, **facts: Any) -> None:
        """Something was done, or seen."""
        line = {"what": what, "at": time.monotonic(), **facts}
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """The run is over."""
        self._file.close()
