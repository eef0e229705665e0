"""One worker of a run: `python -m paceline.train RUN`, started once per device by a launcher."""

import sys
from pathlib import Path

from paceline.train.worker.main import work

if __name__ == "__main__":
    work(Path(sys.argv[1]))
