"""`python -m paceline.comm.binding.count`: print the number of devices for workers, as JSON.

The launcher asks it in a process of its own: it needs torch, which the launcher does not load, and
asking may start the devices' runtime.
"""

import json

from paceline.comm.device_kind import device_kind
from paceline.specs import PacelineError


def main() -> None:
    """Print the number, or what is wrong and what to do."""
    try:
        kind = device_kind()
        answer: dict[str, object] = {"devices": kind.count() if kind.one_per_worker else 0}
    except PacelineError as error:
        answer = {"problem": error.problem, "fix": error.fix}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
