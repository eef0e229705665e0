"""The check of a training in this process, before its job is submitted."""

import sys
from contextlib import redirect_stdout

from paceline.launch.target import Target
from paceline.specs import Layout


def check_training(target: Target, layout: Layout) -> None:
    """Raise an error if the training would differ or fail when it is divided over workers."""
    # Loads torch, which other submissions do not need.
    from paceline.parallel.check.command import findings_of  # noqa: PLC0415
    from paceline.parallel.check.refusal import refuse_bad  # noqa: PLC0415

    with redirect_stdout(sys.stderr):  # output of the user's code must not mix with the result
        refuse_bad(findings_of(target.file, target.function, layout, target.arguments))
